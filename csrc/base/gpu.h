// What every layer may know of an accelerator: its queues of work, and points in them.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"

namespace roundelay {

// Work that the device does in this order: a cudaStream_t. Null is the device's default stream.
using GpuStream = struct GpuStreamState*;

// A point in a stream: behind all that was enqueued when it was marked. Thread-safe; whoever holds it may
// ask.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  // Whether the device is past it. Never blocks. kAborted: the device has failed.
  [[nodiscard]] virtual Result<bool> reached() const = 0;
  // What is enqueued to `stream` from now on runs when the device is past this point. The host goes on.
  [[nodiscard]] virtual Status hold_back(GpuStream stream) const = 0;
};
using GpuEventPtr = std::shared_ptr<const GpuEvent>;

// A point in a stream that keeps the time at which the device came there: for measurements alone, as it costs
// the device more. Thread-safe.
class GpuTimestamp {
 public:
  virtual ~GpuTimestamp() = default;
  // From `earlier`, of the same device, to this one; below zero, if it was later. Never blocks. kUnavailable:
  // the device is not past both.
  [[nodiscard]] virtual Result<Duration> since(const GpuTimestamp& earlier) const = 0;
};
using GpuTimestampPtr = std::shared_ptr<const GpuTimestamp>;

}  // namespace roundelay
