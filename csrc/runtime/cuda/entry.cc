// The module's one symbol.
#include "base/version.h"
#include "kernels/cuda/kernels.h"
#include "platform/cuda/runtime.h"
#include "runtime/gpu/module.h"

// Never destroyed: streams and memory live until the process ends.
extern "C" roundelay::runtime::GpuModule* roundelay_gpu() {
  using namespace roundelay;
  static auto& runtime = *new platform::cuda::CudaRuntime;
  static auto& kernels = *new kernels::cuda::CudaKernels;
  static auto& module = *new runtime::GpuModule{version(), &runtime, &kernels};
  return &module;
}
