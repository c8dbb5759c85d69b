#include "platform/cuda/events.h"

#include <map>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "platform/cuda/device.h"

namespace roundelay::platform::cuda {
namespace {

// A pool of events with the same CUDA flags. Never destroyed, because events may outlive static destruction.
template <unsigned flags>
class Pool {
 public:
  static Pool& get() {
    static auto& pool = *new Pool;
    return pool;
  }

  Result<cudaEvent_t> acquire(int device) {
    {
      MutexLock lock(mutex_);
      std::vector<cudaEvent_t>& idle = idle_[device];
      if (!idle.empty()) {
        cudaEvent_t event = idle.back();
        idle.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;
    ROUNDELAY_RETURN_IF_ERROR(check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags"));
    return event;
  }

  // Streams that already wait for the event still wait for its old position when it is recorded again.
  void release(int device, cudaEvent_t event) {
    MutexLock lock(mutex_);
    idle_[device].push_back(event);
  }

 private:
  Mutex mutex_;
  std::map<int, std::vector<cudaEvent_t>> idle_ GUARDED_BY(mutex_);
};

// Owns one event and returns it to the pool at the end.
template <unsigned flags>
class Lent {
 public:
  static constexpr unsigned kFlags = flags;
  Lent(int device, cudaEvent_t event) : device_(device), event_(event) {}
  ~Lent() { Pool<flags>::get().release(device_, event_); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] cudaEvent_t event() const { return event_; }

 private:
  int device_;
  cudaEvent_t event_;
};

class CudaEvent final : public GpuEvent, public Lent<cudaEventDisableTiming> {
 public:
  using Lent::Lent;

  [[nodiscard]] Result<bool> reached() const override {
    const cudaError_t error = cudaEventQuery(event());
    if (error != cudaErrorNotReady) {
      ROUNDELAY_RETURN_IF_ERROR(check(error, "cudaEventQuery"));
      return true;
    }
    (void)cudaGetLastError();
    return false;
  }

  [[nodiscard]] Status hold_back(GpuStream stream) const override {
    const OnDevice on(device());  // a null stream means this device's default stream
    ROUNDELAY_RETURN_IF_ERROR(on.status());
    return check(cudaStreamWaitEvent(native(stream), event(), 0), "cudaStreamWaitEvent");
  }
};

class CudaTimestamp final : public GpuTimestamp, public Lent<cudaEventDefault> {
 public:
  using Lent::Lent;

  [[nodiscard]] Result<Duration> since(const GpuTimestamp& earlier) const override {
    float milliseconds = 0;
    const auto& from = static_cast<const CudaTimestamp&>(earlier);
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, from.event(), event());
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return Status::unavailable("the device is not there yet");
    }
    ROUNDELAY_RETURN_IF_ERROR(check(error, "cudaEventElapsedTime"));
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(milliseconds));
  }
};

template <typename Event>
Result<std::shared_ptr<const Event>> mark_as(int device, GpuStream stream) {
  Result<cudaEvent_t> taken = Pool<Event::kFlags>::get().acquire(device);
  if (!taken.ok()) return taken.status();
  auto event = std::make_shared<const Event>(device, *taken);
  ROUNDELAY_RETURN_IF_ERROR(check(cudaEventRecord(event->event(), native(stream)), "cudaEventRecord"));
  return event;
}

}  // namespace

Result<GpuEventPtr> mark(int device, GpuStream stream) {
  auto event = mark_as<CudaEvent>(device, stream);
  if (!event.ok()) return event.status();
  return GpuEventPtr(std::move(event).value());
}

Result<GpuTimestampPtr> mark_time(int device, GpuStream stream) {
  auto timestamp = mark_as<CudaTimestamp>(device, stream);
  if (!timestamp.ok()) return timestamp.status();
  return GpuTimestampPtr(std::move(timestamp).value());
}

}  // namespace roundelay::platform::cuda
