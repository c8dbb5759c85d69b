// Implements base/gpu_runtime.h with CUDA's runtime library. A process has one.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/gpu_runtime.h"

namespace roundelay::platform::cuda {

class CudaRuntime final : public GpuRuntime {
 public:
  Result<std::string> description() override;
  Result<int> device_count() override;
  Result<std::string> identity(int device) override;
  Result<Allocation> ask(const void* address) override;
  bool host_reaches_memory() override { return false; }
  bool tell(std::shared_ptr<MemoryListener> listener) override;
  Result<GpuStream> make_stream(int device) override;
  void free_stream(int device, GpuStream stream) override;
  Result<bool> captures(int device, GpuStream stream) override;
  Result<GpuEventPtr> mark(int device, GpuStream stream) override;
  Result<GpuTimestampPtr> mark_time(int device, GpuStream stream) override;
  // Calls cudaMalloc; the last owner calls cudaFree. Both wait for the device, so callers keep their memory.
  Result<GpuMemory> allocate(int device, std::size_t bytes) override;
  Result<GpuMemory> allocate_pinned(std::size_t bytes) override;
  Status copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, GpuStream stream) override;
  Status zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) override;
  Status drain(int device, GpuStream stream) override;

 private:
  // The device that allocate_pinned() makes current. Pinned memory belongs to no device, but with no current
  // device CUDA would start on device 0.
  std::atomic<int> last_device_{0};
};

}  // namespace roundelay::platform::cuda
