// A bucket of DDP's that takes techniques: the one that it has now, and what that keeps back.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gradients/technique_choice.h"
#include "process_group/backend.h"

namespace roundelay::process_group {

// Callers hold the GIL, which functions that wait release. Functions throw as RoundelayBackend's do.
class TechniqueBucket {
 public:
  // `type`: of the elements. `sizes`: the number of elements of each parameter; they lie side by side.
  TechniqueBucket(c10::intrusive_ptr<RoundelayBackend> group, at::ScalarType type,
                  const std::vector<std::int64_t>& sizes);

  // Chooses the technique of later operations, as TechniqueChoice::choose(). The one before must keep nothing
  // back, or what it keeps is lost: forget() says that it may be.
  void choose(const std::string& text);
  void forget();
  [[nodiscard]] const std::string& text() const { return choice_.text(); }
  // Averages the elements of all members in place. While a parameter's elements are zero on all members, the
  // bucket goes densely, and what is kept back stays.
  RoundelayBackend::WorkPtr average(const at::Tensor& elements);
  // Returns whether the technique has carried out the last operation; it waits for its end.
  bool applied();
  // Returns what this member keeps back, in units of its gradients and in the residual's type; undefined:
  // nothing. It stays kept.
  at::Tensor kept();
  // Multiplies what is kept back.
  void rescale(double factor);

 private:
  void end_last();
  [[nodiscard]] std::int32_t digest() const;

  const c10::intrusive_ptr<RoundelayBackend> group_;
  const at::ScalarType type_;
  gradients::BucketElements elements_;
  const std::vector<int> levels_;
  gradients::TechniqueChoice choice_;
  RoundelayBackend::WorkPtr last_;  // null: its end is in `choice_`
};

}  // namespace roundelay::process_group
