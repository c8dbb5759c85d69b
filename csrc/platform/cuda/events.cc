#include "platform/cuda/events.h"

#include <map>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "platform/cuda/device.h"

namespace roundelay::platform::cuda {
namespace {

// Never destroyed: events outlive whatever order a process ends in.
class Pool {
 public:
  static Pool& get() {
    static auto& pool = *new Pool;
    return pool;
  }

  Result<cudaEvent_t> take(int device) {
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
    ROUNDELAY_RETURN_IF_ERROR(
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags"));
    return event;
  }

  // Those that wait for its last point go on doing so when it is marked anew.
  void give_back(int device, cudaEvent_t event) {
    MutexLock lock(mutex_);
    idle_[device].push_back(event);
  }

 private:
  Mutex mutex_;
  std::map<int, std::vector<cudaEvent_t>> idle_ GUARDED_BY(mutex_);
};

class CudaEvent final : public GpuEvent {
 public:
  CudaEvent(int device, cudaEvent_t event) : device_(device), event_(event) {}
  ~CudaEvent() override { Pool::get().give_back(device_, event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  [[nodiscard]] Result<bool> reached() const override {
    const cudaError_t error = cudaEventQuery(event_);
    if (error != cudaErrorNotReady) {
      ROUNDELAY_RETURN_IF_ERROR(check(error, "cudaEventQuery"));
      return true;
    }
    (void)cudaGetLastError();
    return false;
  }

  [[nodiscard]] Status hold_back(GpuStream stream) const override {
    const OnDevice on(device_);  // whose default stream a null one is
    ROUNDELAY_RETURN_IF_ERROR(on.status());
    return check(cudaStreamWaitEvent(native(stream), event_, 0), "cudaStreamWaitEvent");
  }

  [[nodiscard]] cudaEvent_t native_event() const { return event_; }

 private:
  int device_;
  cudaEvent_t event_;
};

}  // namespace

Result<GpuEventPtr> mark(int device, GpuStream stream) {
  Result<cudaEvent_t> taken = Pool::get().take(device);
  if (!taken.ok()) return taken.status();
  auto event = std::make_shared<const CudaEvent>(device, *taken);
  ROUNDELAY_RETURN_IF_ERROR(check(cudaEventRecord(event->native_event(), native(stream)), "cudaEventRecord"));
  return GpuEventPtr(std::move(event));
}

}  // namespace roundelay::platform::cuda
