// The parts of a process that drive its GPU: the separately loaded module (_cuda.so; in tests a fake) and
// NCCL.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/gpu_runtime.h"
#include "collective/device/device_fabric.h"
#include "kernels/gpu.h"
#include "platform/nccl/api.h"

namespace roundelay::gpu {

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
  collective::Pointers pointers{};    // remembers where `runtime` says that memory lies
};

// Makes the process's cache of where this runtime's memory lies.
inline collective::Pointers pointers_of(GpuRuntime& runtime) {
  auto cache = std::make_shared<pointers::PointerCache>(runtime);
  const bool hears_all = runtime.tell(cache);
  return {.cache = std::move(cache), .hears_all = hears_all};
}

}  // namespace roundelay::gpu
