#include "collective/device/device_stream.h"

#include <utility>

namespace roundelay::collective::device {

Result<std::shared_ptr<DeviceStream>> DeviceStream::make(GpuRuntime& runtime, int device) {
  const Result<GpuStream> stream = runtime.make_stream(device);
  if (!stream.ok()) return stream.status();
  return std::shared_ptr<DeviceStream>(new DeviceStream(runtime, device, *stream));
}

void DeviceStream::enqueued(const Status& result) {
  unmarked_ = true;
  if (error_.ok() && !result.ok()) error_ = result;
}

Status DeviceStream::follow(GpuStream other) {
  const Result<GpuEventPtr> there = runtime_.mark(device_, other);
  if (!there.ok()) return there.status();
  enqueued((*there)->hold_back(stream_));
  return error_;
}

Status DeviceStream::lead(GpuStream other) {
  const Result<GpuEventPtr> end = end_of_work();
  if (!end.ok()) return end.status();
  return *end == nullptr ? Status() : (*end)->hold_back(other);
}

Result<GpuEventPtr> DeviceStream::end_of_work() {
  if (!error_.ok()) return error_;
  if (unmarked_) {
    Result<GpuEventPtr> mark = runtime_.mark(device_, stream_);
    if (!mark.ok()) return error_ = mark.status();
    last_ = std::move(mark).value();
    unmarked_ = false;
  }
  if (last_ != nullptr) {
    const Result<bool> reached = last_->reached();
    if (!reached.ok()) return error_ = reached.status();
    if (*reached) last_.reset();
  }
  return last_;
}

}  // namespace roundelay::collective::device
