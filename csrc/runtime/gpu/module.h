// The parts of a process that drive its GPU: the separately loaded module (_cuda.so; in tests a fake) and
// NCCL.
#pragma once

#include <string>

#include "base/gpu_runtime.h"
#include "kernels/gpu.h"
#include "platform/nccl/api.h"

namespace roundelay::runtime {

// The module owns it and never destroys it.
struct GpuModule {
  std::string version;  // compared before all else: module and core must be built from one source
  GpuRuntime* runtime = nullptr;
  kernels::GpuKernels* kernels = nullptr;
};
using GpuModuleEntry = GpuModule* (*)();
inline constexpr const char* kGpuModuleEntry = "roundelay_gpu";  // extern "C" symbol of the module

// The objects live as long as the process.
struct GpuParts {
  GpuRuntime* runtime = nullptr;  // null: tensors on a GPU are refused
  kernels::GpuKernels* kernels = nullptr;
  platform::NcclApi* nccl = nullptr;  // null: the process has no NCCL
  std::string why_no_nccl;            // the reason if `nccl` is null
};

}  // namespace roundelay::runtime
