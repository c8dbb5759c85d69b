// The functions that the hooks on an optimizer's parameters call. Autograd calls the hooks hundreds of times
// in a step, with the GIL. The functions may throw what Python throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "gradients/backward_end.h"
#include "gradients/gradient.h"
#include "gradients/reducer.h"

namespace roundelay::gradients {

// Runs before autograd adds to `.grad`. It is the parameter's own hook and not one of the graph's node,
// because autograd makes another node when `.data` gets another dtype or device. Autograd also calls it with
// an undefined gradient. Errors: those of Gradient::expect().
[[nodiscard]] Status before_accumulation(Gradient& gradient, const at::Tensor& incoming);

// Runs after autograd has added to `.grad`, or had nothing to add. Errors: those of Reducer::arrived().
[[nodiscard]] Status after_accumulation(const std::shared_ptr<Gradient>& gradient, Reducer& reducer,
                                        const at::Tensor& parameter);

// Records the arrivals of gradients that nobody reduces in the timeline: those of a job of one rank.
class GradientMarks final : public Listener, public std::enable_shared_from_this<GradientMarks> {
 public:
  [[nodiscard]] HookRules& rules() { return rules_; }
  // Runs after autograd has added to `.grad`.
  void after_accumulation(Gradient& gradient, const at::Tensor& parameter);

  // It waits for no other rank.
  [[nodiscard]] Order order() const override { return {-2, 0}; }
  bool backward_ended() override { return false; }
  [[nodiscard]] Status begin_round(bool /*final*/, bool /*alone*/) override { return {}; }
  [[nodiscard]] Status end_round() override { return {}; }

 private:
  HookRules rules_;
};

// Ends a backward that compiled autograd runs after one gradient, as no callback will come. For a listener
// that waits for no rank. Errors: those of BackwardEnd::ended().
[[nodiscard]] Status end_if_compiled();

}  // namespace roundelay::gradients
