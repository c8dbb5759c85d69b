// Notices that weights change between two backwards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "gradients/weak_tensor.h"

namespace roundelay::gradients {

// Compares the versions of a parameter, and of the tensor that the optimizer steps for it, with those of the
// last backward. Callers hold the GIL.
class StepWatch {
 public:
  // `stepped`: the parameter's fp32 master, or the parameter itself. Not kept alive.
  explicit StepWatch(const at::Tensor& stepped) : stepped_(stepped) {}

  // Makes changes until the next backward count as expected.
  void forget() { seen_.reset(); }
  // Notes the versions: a backward has brought a gradient of the parameter. Returns true if the stepped
  // tensor has changed since the last one, but for a master that has got a new value of the parameter.
  [[nodiscard]] bool changed(const at::Tensor& parameter) {
    const at::Tensor stepped = stepped_.lock();
    if (!stepped.defined()) return false;
    const Versions now{stepped._version(), parameter._version()};
    const std::optional<Versions> before = std::exchange(seen_, now);
    if (!before || before->stepped == now.stepped) return false;
    return stepped.is_same(parameter) || before->parameter == now.parameter;
  }

 private:
  struct Versions {
    std::int64_t stepped;
    std::int64_t parameter;
  };

  const WeakTensor stepped_;
  std::optional<Versions> seen_;  // by the last backward
};

}  // namespace roundelay::gradients
