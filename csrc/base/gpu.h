// What every layer may know of an accelerator: its queues of work, and points in them.
#pragma once

#include <memory>

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

}  // namespace roundelay
