// Records events. A pool keeps CUDA's events and uses them again, because each step records many.
#pragma once

#include "base/gpu.h"
#include "base/status.h"

namespace roundelay::platform::cuda {

// Record an event, or a timestamp, after all work that is in `stream` now. `device` must be the current
// device. Thread-safe.
[[nodiscard]] Result<GpuEventPtr> mark(int device, GpuStream stream);
[[nodiscard]] Result<GpuTimestampPtr> mark_time(int device, GpuStream stream);

}  // namespace roundelay::platform::cuda
