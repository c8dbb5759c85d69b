// The settings of a lane.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "base/clock.h"
#include "gpu/gpu_fabric.h"
#include "gpu/gpu_sequencer.h"
#include "gpu/module.h"

namespace roundelay::execute {

// A lane needs these for tensors on a GPU. `sequencer` outlives the lane.
struct LaneGpu {
  gpu::GpuParts parts;
  gpu::GpuSequencer* sequencer;
  gpu::GpuFabricOptions fabric;
};

struct LaneOptions {
  Duration progress_timeout = std::chrono::seconds(30);  // ROUNDELAY_PROGRESS_TIMEOUT
  // The most bytes of a batch of several tensors, padding included. A larger fusion buffer is freed after
  // use.
  std::size_t fusion_threshold = 0;
  Duration stall_warning{
      0};  // a call of its own that takes so long is told once (ROUNDELAY_STALL_CHECK_TIME); 0: never
  bool schedule_lock = false;    // allow schedule locks, where the fabric has announcements
  std::optional<LaneGpu> gpu{};  // nothing: the caller submits no tensor on a GPU
  // The lane sets it (LaneExecutors): the number of calls that may share the links. Each may take that many
  // times as long.
  std::size_t calls_at_once = 1;

  // Returns the time that one call may take besides its transfer. On a device that time includes the work
  // that the program has enqueued before the call, such as the rest of backward, here and at the peers. No
  // rank knows how long that takes, so a device gets ten times the limit: more than a step takes, but not for
  // ever.
  [[nodiscard]] Duration call_timeout(bool on_gpu) const { return progress_timeout * (on_gpu ? 10 : 1); }
};

}  // namespace roundelay::execute
