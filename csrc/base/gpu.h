// A GPU's streams and events, without the headers of CUDA: all layers may include this.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"

namespace roundelay {

// A queue of work that the device runs in order: a cudaStream_t. Null is the device's default stream.
using GpuStream = struct GpuStreamState*;

// An event: it marks the end of the work that its stream held when it was recorded. Any thread may use it.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  // Returns whether the device has finished that work. Never blocks. Errors: kAborted (the device failed).
  [[nodiscard]] virtual Result<bool> reached() const = 0;
  // Makes all work that is enqueued to `stream` from now on wait for this event. The host does not wait. A
  // null stream is the default stream of the event's device. Errors: kAborted (the device failed).
  [[nodiscard]] virtual Status hold_back(GpuStream stream) const = 0;
};
using GpuEventPtr = std::shared_ptr<const GpuEvent>;

// An event that keeps the time at which the device reached it. It costs the device more than a GpuEvent, so
// only measurements use it. Thread-safe.
class GpuTimestamp {
 public:
  virtual ~GpuTimestamp() = default;
  // Returns the time from `earlier`, on the same device, to this event; negative if this one came first.
  // Never blocks. Errors: kUnavailable (the device has not reached both), kAborted (the device failed).
  [[nodiscard]] virtual Result<Duration> since(const GpuTimestamp& earlier) const = 0;
};
using GpuTimestampPtr = std::shared_ptr<const GpuTimestamp>;

}  // namespace roundelay
