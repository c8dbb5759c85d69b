#include "collective/device/device_probe.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/leak.h"

namespace roundelay::collective {

DeviceProbe::~DeviceProbe() {
  const bool unfinished = call_ != nullptr || (stream_ != nullptr && fetched_ == nullptr);
  call_.reset();
  if (unfinished) {  // the device and the medium may still use these
    leak(std::move(memory_));
    leak(std::move(pinned_));
  }
  if (stream_ != nullptr) runtime_.free_stream(device_, stream_);
}

Status DeviceProbe::begin(Deadline deadline, const AbortToken* abort) {
  const std::size_t all = members() * kBytes;
  const auto self = static_cast<std::size_t>(fabric_.group().index);
  auto memory = runtime_.allocate(device_, all);
  if (!memory.ok()) return memory.status();
  auto pinned = runtime_.allocate_pinned(all);
  if (!pinned.ok()) return pinned.status();
  const auto stream = runtime_.make_stream(device_);
  if (!stream.ok()) return stream.status();
  memory_ = std::move(memory).value();
  pinned_ = std::move(pinned).value();
  stream_ = *stream;
  std::memset(pinned_.get(), 0, all);
  std::memset(pinned_.get() + self * kBytes, static_cast<int>(byte_of(self)), kBytes);
  ROUNDELAY_RETURN_IF_ERROR(runtime_.copy(device_, memory_.get(), pinned_.get(), all, stream_));
  AllgatherCall call;
  call.stream = stream_;
  call.deadline = deadline;
  call.abort = abort;
  call.input = memory_.get() + self * kBytes;
  call.output = {memory_.get(), all};
  call.receive_bytes = std::vector(members(), kBytes);
  auto started = fabric_.start(call);
  if (!started.ok()) return started.status();
  call_ = std::move(started).value();
  return {};
}

Result<bool> DeviceProbe::test() {
  if (call_) {
    Result<bool> over = call_->test();
    if (!over.ok() || !*over) return over;
    call_.reset();
    ROUNDELAY_RETURN_IF_ERROR(fetch());
  }
  Result<bool> there = fetched_->reached();
  if (!there.ok() || !*there) return there;
  ROUNDELAY_RETURN_IF_ERROR(compare());
  return true;
}

Status DeviceProbe::fetch() {
  ROUNDELAY_RETURN_IF_ERROR(
      runtime_.copy(device_, pinned_.get(), memory_.get(), members() * kBytes, stream_));
  auto mark = runtime_.mark(device_, stream_);
  if (!mark.ok()) return mark.status();
  fetched_ = std::move(mark).value();
  return {};
}

Status DeviceProbe::compare() const {
  for (std::size_t i = 0; i < members() * kBytes; ++i) {
    if (pinned_.get()[i] == byte_of(i / kBytes)) continue;
    return Status::unavailable("other bytes came from rank " +
                               std::to_string(fabric_.group().ranks[i / kBytes]) + " than it sent");
  }
  return {};
}

}  // namespace roundelay::collective
