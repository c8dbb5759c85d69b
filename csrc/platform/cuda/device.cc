#include "platform/cuda/device.h"

#include <cuda.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>

namespace roundelay::platform::cuda {

Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  std::string message = std::string(call) + ": " + cudaGetErrorString(error);
  switch (error) {
    case cudaErrorMemoryAllocation:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorCudartUnloading:
      return Status::unavailable(std::move(message));
    default:
      return Status::aborted(std::move(message));
  }
}

namespace {

// Returns whether the device has a CUDA context. A thread that never chose a device has device 0; restoring
// it without a context would start CUDA there, which takes hundreds of MiB.
bool in_use(int device) {
  using GetState = CUresult (*)(CUdevice, unsigned*, int*);
  static const GetState get_state = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &entry, 7000,
                                                               cudaEnableDefault, &found);
    return error == cudaSuccess ? reinterpret_cast<GetState>(entry) : nullptr;
  }();
  unsigned flags = 0;
  int active = 1;
  if (get_state != nullptr) (void)get_state(device, &flags, &active);
  return active != 0;
}

}  // namespace

OnDevice::OnDevice(int device) {
  int current = -1;
  status_ = check(cudaGetDevice(&current), "cudaGetDevice");
  if (!status_.ok() || current == device) return;
  status_ = check(cudaSetDevice(device), "cudaSetDevice");
  if (status_.ok()) before_ = current;
}

OnDevice::~OnDevice() {
  if (before_ >= 0 && in_use(before_)) (void)cudaSetDevice(before_);
}

Result<int> multiprocessors(int device) {
  static std::array<std::atomic<int>, 64> known{};
  const auto index = static_cast<std::size_t>(device);
  if (index < known.size()) {
    if (const int count = known[index].load(std::memory_order_relaxed); count != 0) return count;
  }
  int count = 0;
  ROUNDELAY_RETURN_IF_ERROR(check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                                  "cudaDeviceGetAttribute"));
  if (index < known.size()) known[index].store(count, std::memory_order_relaxed);
  return count;
}

}  // namespace roundelay::platform::cuda
