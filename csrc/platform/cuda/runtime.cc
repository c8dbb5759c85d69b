#include "platform/cuda/runtime.h"

#include <algorithm>
#include <utility>

#include "platform/cuda/describe.h"
#include "platform/cuda/device.h"
#include "platform/cuda/events.h"
#include "platform/cuda/pointers.h"

namespace roundelay::platform::cuda {
namespace {

// Ignores errors: CUDA may end before this at the end of the process.
void free_device(int device, void* memory) {
  const OnDevice on(device);
  if (cudaFree(memory) != cudaSuccess) (void)cudaGetLastError();
}
void free_pinned(void* memory) {
  if (cudaFreeHost(memory) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace

Result<std::string> CudaRuntime::description() { return describe(); }

Result<int> CudaRuntime::device_count() {
  int count = 0;
  ROUNDELAY_RETURN_IF_ERROR(check(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  return count;
}

Result<std::string> CudaRuntime::identity(int device) {
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  return describe_identity(device);
}

Result<Allocation> CudaRuntime::ask(const void* address) {
  const OnDevice on(last_device_);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  return ask_driver(address);
}

bool CudaRuntime::tell(std::shared_ptr<MemoryListener> listener) {
  return hear_of_memory(std::move(listener));
}

Result<GpuStream> CudaRuntime::make_stream(int device) {
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  last_device_ = device;
  int least = 0, greatest = 0;
  ROUNDELAY_RETURN_IF_ERROR(
      check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange"));
  cudaStream_t stream = nullptr;
  ROUNDELAY_RETURN_IF_ERROR(check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
                                  "cudaStreamCreateWithPriority"));
  return reinterpret_cast<GpuStream>(stream);
}

void CudaRuntime::free_stream(int device, GpuStream stream) {
  const OnDevice on(device);
  if (cudaStreamDestroy(native(stream)) != cudaSuccess) (void)cudaGetLastError();
}

Result<bool> CudaRuntime::captures(int device, GpuStream stream) {
  const OnDevice on(device);  // a null stream means this device's default stream
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(native(stream), &status);
  if (error == cudaErrorStreamCaptureImplicit) {  // another stream's capture forbids the default stream
    (void)cudaGetLastError();
    return true;
  }
  ROUNDELAY_RETURN_IF_ERROR(check(error, "cudaStreamIsCapturing"));
  return status != cudaStreamCaptureStatusNone;
}

Result<GpuEventPtr> CudaRuntime::mark(int device, GpuStream stream) {
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  return cuda::mark(device, stream);
}

Result<GpuTimestampPtr> CudaRuntime::mark_time(int device, GpuStream stream) {
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  return cuda::mark_time(device, stream);
}

Result<GpuMemory> CudaRuntime::allocate(int device, std::size_t bytes) {
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  last_device_ = device;
  void* memory = nullptr;
  ROUNDELAY_RETURN_IF_ERROR(check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc"));
  return GpuMemory(static_cast<std::byte*>(memory),
                   [device](std::byte* given) { free_device(device, given); });
}

Result<GpuMemory> CudaRuntime::allocate_pinned(std::size_t bytes) {
  const OnDevice on(last_device_);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  void* memory = nullptr;
  ROUNDELAY_RETURN_IF_ERROR(
      check(cudaHostAlloc(&memory, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable), "cudaHostAlloc"));
  return GpuMemory(static_cast<std::byte*>(memory), free_pinned);
}

Status CudaRuntime::copy(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                         GpuStream stream) {
  if (bytes == 0) return {};
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), "cudaMemcpyAsync");
}

Status CudaRuntime::zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) {
  if (bytes == 0) return {};
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  return check(cudaMemsetAsync(to, 0, bytes, native(stream)), "cudaMemsetAsync");
}

Status CudaRuntime::drain(int device, GpuStream stream) {
  const OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  return check(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize");
}

}  // namespace roundelay::platform::cuda
