// All streams of a fake device's process, and the state of its devices.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/gpu.h"
#include "tests/cpp/doubles/fake_gpu_stream.h"

namespace roundelay::doubles {

// Thread-safe. Events keep it alive. end() must be called before it is destroyed.
class FakeStreams : public std::enable_shared_from_this<FakeStreams> {
 public:
  FakeStreams(int devices, unsigned seed, Duration longest_delay);

  // Returns OK while the devices work, otherwise the cause of fail().
  [[nodiscard]] Status health() const EXCLUDES(mutex_);
  void fail(const Status& cause) EXCLUDES(mutex_);
  // Stops all streams and waits for their threads.
  void end() EXCLUDES(mutex_);

  [[nodiscard]] Status check(int device) const;
  [[nodiscard]] Result<GpuStream> make(int device) EXCLUDES(mutex_);
  void free(GpuStream stream) EXCLUDES(mutex_);
  // Returns a stream; null means the device's default stream.
  [[nodiscard]] Result<std::shared_ptr<FakeStream>> find(int device, GpuStream stream) EXCLUDES(mutex_);
  [[nodiscard]] Result<GpuEventPtr> mark(int device, GpuStream stream);
  // Records the host's clock when the stream reaches the timestamp.
  [[nodiscard]] Result<GpuTimestampPtr> mark_time(int device, GpuStream stream);

  void hold_all() EXCLUDES(mutex_);
  void release_all() EXCLUDES(mutex_);

 private:
  using StreamPtr = std::shared_ptr<FakeStream>;
  StreamPtr start(int device) REQUIRES(mutex_);

  const std::size_t devices_;
  const unsigned seed_;
  const Duration longest_delay_;
  mutable Mutex mutex_;
  Status fault_ GUARDED_BY(mutex_);
  int holds_ GUARDED_BY(mutex_) = 0;
  std::vector<StreamPtr> all_ GUARDED_BY(mutex_);  // default streams first, then all others, freed ones too
  std::map<GpuStream, StreamPtr> made_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::doubles
