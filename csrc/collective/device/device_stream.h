// A fabric's own stream on a device. It tells the host whether the work in it is done, and whether something
// went wrong.
#pragma once

#include <memory>

#include "base/gpu_runtime.h"

namespace roundelay::collective::device {

// One thread at a time.
class DeviceStream {
 public:
  // Makes a stream on the device. Errors: those of base/gpu_runtime.h. `runtime` outlives the stream.
  static Result<std::shared_ptr<DeviceStream>> make(GpuRuntime& runtime, int device);
  ~DeviceStream() { runtime_.free_stream(device_, stream_); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  [[nodiscard]] GpuRuntime& runtime() const { return runtime_; }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] GpuStream stream() const { return stream_; }

  // Call it with the result of each enqueue to this stream. The stream keeps the first error.
  void enqueued(const Status& result);
  [[nodiscard]] const Status& error() const { return error_; }
  // Makes work that is enqueued here from now on wait for the work that is in `other` now.
  Status follow(GpuStream other);
  // Makes work that is enqueued to `other` from now on wait for the work that is here now.
  Status lead(GpuStream other);
  // Returns the event after all work that is here now. Null: all of it is done. Errors: the first one of
  // this stream.
  Result<GpuEventPtr> end_of_work();

 private:
  DeviceStream(GpuRuntime& runtime, int device, GpuStream stream)
      : runtime_(runtime), device_(device), stream_(stream) {}

  GpuRuntime& runtime_;
  const int device_;
  const GpuStream stream_;
  bool unmarked_ = false;  // there is work after last_
  GpuEventPtr last_;       // null: the work before it is done
  Status error_;
};

}  // namespace roundelay::collective::device
