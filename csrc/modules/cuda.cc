// The entry of the module _cuda.so (gpu/module.h).
#include "base/version.h"
#include "gpu/module.h"
#include "kernels/cuda/kernels.h"
#include "platform/cuda/runtime.h"

// The objects are never destroyed, because streams and memory live until the process ends.
extern "C" roundelay::gpu::GpuModule* roundelay_gpu() {
  using namespace roundelay;
  static auto& runtime = *new platform::cuda::CudaRuntime;
  static auto& kernels = *new kernels::cuda::CudaKernels;
  static auto& module = *new gpu::GpuModule{version(), &runtime, &kernels};
  return &module;
}
