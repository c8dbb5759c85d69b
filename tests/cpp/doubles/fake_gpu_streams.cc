#include "tests/cpp/doubles/fake_gpu_streams.h"

#include <atomic>
#include <string>
#include <utility>

namespace roundelay::doubles {
namespace {

class FakeEvent final : public GpuEvent {
 public:
  FakeEvent(std::shared_ptr<FakeStreams> streams, std::shared_ptr<FakeStream> stream)
      : streams_(std::move(streams)), stream_(std::move(stream)), point_(stream_->mark()) {}

  [[nodiscard]] Result<bool> reached() const override {
    ROUNDELAY_RETURN_IF_ERROR(streams_->health());
    return stream_->reached(point_);
  }
  [[nodiscard]] Status hold_back(GpuStream stream) const override {
    auto waiting = streams_->find(stream_->device(), stream);
    if (!waiting.ok()) return waiting.status();
    // All streams stop together, which ends a wait.
    const auto wait = [source = stream_, point = point_] {
      static_cast<void>(source->wait(point, Deadline::never()));
    };
    (*waiting)->enqueue(wait, {});
    return {};
  }

 private:
  const std::shared_ptr<FakeStreams> streams_;
  const std::shared_ptr<FakeStream> stream_;
  const std::uint64_t point_;
};

// The time of a timestamp. The work that sets it shares it.
class FakeTimestamp final : public GpuTimestamp {
 public:
  void stamp() { reached_ = steady_now().time_since_epoch().count(); }

  [[nodiscard]] Result<Duration> since(const GpuTimestamp& earlier) const override {
    const std::int64_t begin = static_cast<const FakeTimestamp&>(earlier).reached_;
    const std::int64_t end = reached_;
    if (begin == 0 || end == 0) return Status::unavailable("the fake device is not there yet");
    return Duration(end - begin);
  }

 private:
  std::atomic<std::int64_t> reached_{0};
};

}  // namespace

FakeStreams::FakeStreams(int devices, unsigned seed, Duration longest_delay)
    : devices_(static_cast<std::size_t>(devices)), seed_(seed), longest_delay_(longest_delay) {
  const MutexLock lock(mutex_);
  for (int device = 0; device < devices; ++device) start(device);
}

Status FakeStreams::health() const {
  const MutexLock lock(mutex_);
  return fault_;
}

void FakeStreams::fail(const Status& cause) {
  std::vector<StreamPtr> streams;
  {
    const MutexLock lock(mutex_);
    if (fault_.ok()) fault_ = cause;
    streams = all_;
  }
  for (const StreamPtr& stream : streams) stream->stop();
}

void FakeStreams::end() {
  fail(Status::aborted("the fake device is no more"));
  std::vector<StreamPtr> streams;
  {
    const MutexLock lock(mutex_);
    streams = all_;
  }
  for (const StreamPtr& stream : streams) stream->join();
}

Status FakeStreams::check(int device) const {
  if (device >= 0 && static_cast<std::size_t>(device) < devices_) return health();
  return Status::unavailable("there is no fake device " + std::to_string(device));
}

Result<GpuStream> FakeStreams::make(int device) {
  ROUNDELAY_RETURN_IF_ERROR(check(device));
  const MutexLock lock(mutex_);
  if (!fault_.ok()) return fault_;
  const StreamPtr stream = start(device);
  const auto handle = reinterpret_cast<GpuStream>(stream.get());
  made_.emplace(handle, stream);
  return handle;
}

void FakeStreams::free(GpuStream stream) {
  const MutexLock lock(mutex_);
  const auto found = made_.find(stream);
  if (found == made_.end()) return;
  found->second->finish();
  made_.erase(found);
}

Result<FakeStreams::StreamPtr> FakeStreams::find(int device, GpuStream stream) {
  ROUNDELAY_RETURN_IF_ERROR(check(device));
  const MutexLock lock(mutex_);
  if (stream == nullptr) return all_[static_cast<std::size_t>(device)];
  const auto found = made_.find(stream);
  if (found == made_.end()) return Status::invalid("no stream of the fake device, or one that was freed");
  if (found->second->device() != device) {
    return Status::invalid("the stream is of fake device " + std::to_string(found->second->device()) +
                           ", not of " + std::to_string(device));
  }
  return found->second;
}

Result<GpuEventPtr> FakeStreams::mark(int device, GpuStream stream) {
  auto found = find(device, stream);
  if (!found.ok()) return found.status();
  return GpuEventPtr(std::make_shared<FakeEvent>(shared_from_this(), std::move(*found)));
}

Result<GpuTimestampPtr> FakeStreams::mark_time(int device, GpuStream stream) {
  auto found = find(device, stream);
  if (!found.ok()) return found.status();
  auto timestamp = std::make_shared<FakeTimestamp>();
  (*found)->enqueue([timestamp] { timestamp->stamp(); }, {});
  return GpuTimestampPtr(std::move(timestamp));
}

void FakeStreams::hold_all() {
  const MutexLock lock(mutex_);
  ++holds_;
  for (const StreamPtr& stream : all_) stream->hold();
}

void FakeStreams::release_all() {
  const MutexLock lock(mutex_);
  --holds_;
  for (const StreamPtr& stream : all_) stream->release();
}

FakeStreams::StreamPtr FakeStreams::start(int device) {
  const auto number = static_cast<unsigned>(all_.size());
  const unsigned seed = seed_ * 7919U + number * 104729U + 1;
  all_.push_back(std::make_shared<FakeStream>(FakeStream::Options{device, seed, longest_delay_, holds_}));
  return all_.back();
}

}  // namespace roundelay::doubles
