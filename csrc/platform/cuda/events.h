// Points in streams. Events are made once and used again: a step marks many.
#pragma once

#include "base/gpu.h"
#include "base/status.h"

namespace roundelay::platform::cuda {

// The point behind all that is in `stream`, of the current device `device`, now.
[[nodiscard]] Result<GpuEventPtr> mark(int device, GpuStream stream);
[[nodiscard]] Result<GpuTimestampPtr> mark_time(int device, GpuStream stream);

}  // namespace roundelay::platform::cuda
