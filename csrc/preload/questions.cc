// The hooks of questions. Answers come from the cache where it has them, and are those of the driver.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "preload/hooks.h"
#include "preload/shim.h"

namespace roundelay::preload {
namespace {

using Ask = CUresult(void* into, int which, CUdeviceptr pointer);
using AskMany = CUresult(unsigned count, int* which, void** into, CUdeviceptr pointer);

const void* memory_at(CUdeviceptr pointer) { return std::bit_cast<const void*>(pointer); }

bool is_kept(int attribute) {
  if (attribute == kIsManaged) return Shim::get().managed_bytes() > 0;
  return attribute == kContext || attribute == kMemoryType || attribute == kDeviceOrdinal;
}

void answer(const MemoryPlace& place, int attribute, void* into) {
  const unsigned type = place.kind == MemoryKind::kDevice ? kDeviceMemory : kHostMemory;
  if (attribute == kContext) std::memcpy(into, &place.context, sizeof(CUcontext));
  if (attribute == kMemoryType) std::memcpy(into, &type, sizeof type);
  if (attribute == kDeviceOrdinal) std::memcpy(into, &place.device, sizeof place.device);
  if (attribute == kIsManaged) std::memset(into, 0, Shim::get().managed_bytes());
}

// Managed memory moves, so its place is asked each time.
bool answers(unsigned count, const int* which, void** into, CUdeviceptr pointer) {
  const std::optional<MemoryPlace> place = Shim::get().cache().known(memory_at(pointer));
  if (!place || place->kind == MemoryKind::kManaged) return false;
  for (unsigned i = 0; i < count; ++i) answer(*place, which[i], into[i]);
  return true;
}

// Returns whether the driver has just said that the memory is not plain host memory.
bool is_special(unsigned count, const int* which, void** into) {
  const int* const type = std::find(which, which + count, kMemoryType);
  return type != which + count && *static_cast<const unsigned*>(into[type - which]) != 0;
}

// `driver`: asks the driver itself.
template <class Driver>
CUresult ask(unsigned count, int* which, void** into, CUdeviceptr pointer, const Driver& driver) {
  Shim& shim = Shim::get();
  shim.count_question();
  const bool kept = shim.on() && std::all_of(which, which + count, is_kept);
  if (kept && answers(count, which, into, pointer)) return 0;
  shim.count_passed_on();
  const CUresult result = driver();
  if (kept && result == 0 && is_special(count, which, into)) {
    static_cast<void>(shim.cache().locate(memory_at(pointer)));  // learns the whole range
  }
  return result;
}

}  // namespace
}  // namespace roundelay::preload

using roundelay::preload::Hook;
using roundelay::preload::real;

extern "C" __attribute__((visibility("default"))) CUresult cuPointerGetAttribute(void* into, int which,
                                                                                 CUdeviceptr pointer) {
  return roundelay::preload::ask(1, &which, &into, pointer, [&] {
    return real<roundelay::preload::Ask>(Hook::cuPointerGetAttribute)(into, which, pointer);
  });
}

extern "C" __attribute__((visibility("default"))) CUresult cuPointerGetAttributes(unsigned count, int* which,
                                                                                  void** into,
                                                                                  CUdeviceptr pointer) {
  return roundelay::preload::ask(count, which, into, pointer, [&] {
    return real<roundelay::preload::AskMany>(Hook::cuPointerGetAttributes)(count, which, into, pointer);
  });
}
