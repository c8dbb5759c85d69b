// Collects the streams that produce the parts of one operation. Autograd runs each backward on the stream of
// its forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "adapter/accelerator.h"
#include "base/status.h"

namespace roundelay::gradients {

// Serves one operation at a time. Callers hold the GIL.
class Producers {
 public:
  // Notes that the current stream produces `tensor`. Does nothing on the CPU. Errors: as
  // adapter::Accelerator::stream_for().
  [[nodiscard]] Status note(const at::Tensor& tensor, adapter::Accelerator& accelerator);
  // Makes the current stream wait for the streams that were noted, and forgets them. Call it before an
  // operation is submitted from this stream. Errors: those of base/gpu_runtime.h.
  [[nodiscard]] Status gather();

 private:
  std::vector<adapter::CallerStream> streams_;  // no stream comes twice; nearly always one
};

}  // namespace roundelay::gradients
