// Streams on which the parts of one operation come to be, as autograd has each backward on its forward's
// stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "adapter/accelerator.h"
#include "base/status.h"

namespace roundelay::adapter {

// Of one operation at a time. All calls with the GIL.
class Producers {
 public:
  // What is enqueued in the current stream has made `tensor`. Nothing on the CPU. Errors: as
  // Accelerator::stream_for.
  [[nodiscard]] Status note(const at::Tensor& tensor, Accelerator& accelerator);
  // The current stream goes on when all that were noted since the last time are where they are now: an
  // operation that is submitted from it finds its parts there. Errors: as GpuRuntime.
  [[nodiscard]] Status gather();

 private:
  std::vector<CallerStream> streams_;  // each once; nearly always one
};

}  // namespace roundelay::adapter
