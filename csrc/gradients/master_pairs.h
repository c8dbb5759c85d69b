// The fp32 masters of one optimizer's half parameters.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gradients/master_pair.h"

namespace roundelay::gradients {

// Python decides which parameters have masters, and keeps the tensors alive
// (python/roundelay/torch/_internal/optimizer/master_weights.py). Callers hold the GIL, which copies release.
class MasterPairs {
 public:
  using Pairs = std::vector<std::shared_ptr<MasterPair>>;

  // Has these pairs from now on.
  void set(Pairs pairs) { pairs_ = std::move(pairs); }

  // Gives the masters their gradients where the parameters have newer ones. `arrived`: a backward has ended.
  // Errors: those of MasterPair::source(), and then no master has got a gradient.
  [[nodiscard]] Status take_gradients(bool arrived) const;
  // Notes that GradScaler has changed the masters' gradients, which their versions do not tell.
  void note_unscaled() const;
  // Begins new gradients, after zero_grad() of both sides.
  void begin_gradients() const;

  // Gives the masters the values that were changed in the parameters since the last step.
  void refresh() const;
  // Rounds the masters into the parameters.
  void write_back() const;
  // Ends a step, in which the optimizer has changed the masters.
  void end_step() const;

 private:
  Pairs pairs_;
};

}  // namespace roundelay::gradients
