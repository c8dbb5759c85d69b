// What a process has of accelerators: the separately loaded module (_cuda.so; in tests a fake) and NCCL.
#pragma once

#include <string>

#include "base/gpu_runtime.h"
#include "kernels/gpu.h"
#include "platform/nccl/api.h"

namespace roundelay::runtime {

// Owned by the module, never destroyed while the process lives.
struct GpuModule {
  std::string version;  // both sides must be built from one source: compared before anything else is used
  GpuRuntime* runtime = nullptr;
  kernels::GpuKernels* kernels = nullptr;
};
using GpuModuleEntry = GpuModule* (*)();
inline constexpr const char* kGpuModuleEntry = "roundelay_gpu";  // extern "C" symbol of the module

// All live as long as the process.
struct GpuParts {
  GpuRuntime* runtime = nullptr;  // null: tensors on a GPU are refused
  kernels::GpuKernels* kernels = nullptr;
  platform::NcclApi* nccl = nullptr;
  std::string why_no_nccl;  // where there is none
};

}  // namespace roundelay::runtime
