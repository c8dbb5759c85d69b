// A half parameter and its fp32 master: which of them has the newer weights and the newer gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "gradients/weak_tensor.h"

namespace roundelay::gradients {

// The gradient is noted on both sides when the master gets it. Callers hold the GIL and keep both tensors
// alive, which this does not.
class MasterPair {
 public:
  // The master has the parameter's values. `label` names the parameter in messages.
  MasterPair(const at::Tensor& parameter, const at::Tensor& master, std::string label);

  [[nodiscard]] at::Tensor parameter() const { return parameter_.lock(); }
  [[nodiscard]] at::Tensor master() const { return master_.lock(); }
  [[nodiscard]] const std::string& label() const { return label_; }

  // Notes that the parameter has the master's values, rounded.
  void note_weight() { weight_ = parameter()._version(); }
  // Gives the master the values that were changed in the parameter since note_weight().
  void refresh();
  // Gives the master `values` where the parameter has them, rounded, and elsewhere the parameter's own.
  void take_where_equal(const at::Tensor& values);

  // Returns the parameter's gradient if the master is to get it, otherwise an undefined tensor. `arrived`: a
  // backward has ended. Errors: kUnavailable (both gradients were changed since the last time).
  [[nodiscard]] Result<at::Tensor> source(bool arrived);
  // Makes the master's gradient and returns it. If it is dense, the caller copies `gradient` into it.
  [[nodiscard]] at::Tensor room(const at::Tensor& gradient);
  // Notes that the master has the parameter's gradient, if both have one.
  void note_gradient();
  // Notes that the master's gradient was changed without a new version.
  void note_change();
  // Begins new gradients: those that there are after zero_grad() are equal.
  void begin_gradients();
  // Ends a step. Optimizers may change gradients; these changes do not count as the users'.
  void end_step();

 private:
  void drop_gradient();
  void forget_gradient();

  const WeakTensor parameter_;
  const WeakTensor master_;
  const std::string label_;
  std::int64_t weight_ = 0;             // the parameter's version that has the master's values
  std::optional<TensorVersion> taken_;  // the parameter's gradient; nothing: the master has none of it
  std::optional<TensorVersion> given_;  // the master's; outdated if it was changed after it was given
};

}  // namespace roundelay::gradients
