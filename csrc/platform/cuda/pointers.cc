#include "platform/cuda/pointers.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/leak.h"

namespace roundelay::platform::cuda {
namespace {

using GetAttributes = decltype(&cuPointerGetAttributes);
// The function by which libroundelay_pointer_cache.so takes a listener (csrc/preload/hooks.h).
using Hear = bool (*)(MemoryListener* listener);

// Returns the driver's function. Null: the process has no driver. The module does not link the driver, so
// that it loads where there is none.
GetAttributes get_attributes() {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
  static const auto function = reinterpret_cast<GetAttributes>(
      driver == nullptr ? nullptr : ::dlsym(driver, "cuPointerGetAttributes"));
  return function;
}

MemoryPlace place_of(unsigned type, bool managed, int device) {
  if (managed) return {MemoryKind::kManaged, device};
  if (type == CU_MEMORYTYPE_DEVICE) return {MemoryKind::kDevice, device};
  if (type == CU_MEMORYTYPE_HOST) return {MemoryKind::kRegistered, -1};
  return {};
}

}  // namespace

Result<Allocation> ask_driver(const void* address) {
  const GetAttributes ask = get_attributes();
  if (ask == nullptr) return Status::aborted("libcuda.so.1 has no cuPointerGetAttributes");
  std::uint64_t managed = 0;  // the driver writes a boolean; its size is not documented
  unsigned type = 0;
  int device = -1;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* into[] = {&type, &device, &managed, &base, &bytes};
  const CUresult result = ask(5, which, into, reinterpret_cast<CUdeviceptr>(address));
  if (result != CUDA_SUCCESS) {
    return Status::aborted("cuPointerGetAttributes: error " + std::to_string(static_cast<int>(result)));
  }
  const MemoryPlace place = place_of(type, managed != 0, device);
  if (place.kind == MemoryKind::kHost) return Allocation{};
  return Allocation{static_cast<std::uintptr_t>(base), bytes, place};
}

bool hear_of_memory(std::shared_ptr<MemoryListener> listener) {
  const auto hear = reinterpret_cast<Hear>(::dlsym(RTLD_DEFAULT, "roundelay_hear_of_memory"));
  if (hear == nullptr || !hear(listener.get())) return false;
  leak(std::move(listener));  // it hears until the process ends
  return true;
}

}  // namespace roundelay::platform::cuda
