// Plays libcuda.so.1: it knows addresses and has no memory. It counts the questions that reach it. Freed
// addresses come back at once, as whatever kind is asked for next: it lies in wait for old answers.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "preload/driver.h"

namespace {

using namespace roundelay::preload;

struct Range {
  std::size_t bytes;
  unsigned type;
};

struct Memory {
  std::mutex mutex;
  std::map<CUdeviceptr, Range> ranges;
  std::vector<CUdeviceptr> freed;
  CUdeviceptr next = 0x7e0000000000;
  std::int64_t questions = 0;
};

Memory& memory() {
  static Memory& only = *new Memory;
  return only;
}

CUdeviceptr begin(std::size_t bytes, unsigned type) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  CUdeviceptr address = all.next;
  if (all.freed.empty()) {
    all.next += 1 << 20;
  } else {
    address = all.freed.back();
    all.freed.pop_back();
  }
  all.ranges[address] = {bytes, type};
  return address;
}

CUresult end(CUdeviceptr address) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  if (all.ranges.erase(address) == 0) return 1;
  all.freed.push_back(address);
  return 0;
}

void answer(int which, void* into, CUdeviceptr base, const Range& range) {
  const std::uintptr_t context = range.type == 0 ? 0 : 0xC0;
  const int device = range.type == kDeviceMemory ? 3 : 0;
  if (which == kContext) std::memcpy(into, &context, sizeof context);
  if (which == kMemoryType) std::memcpy(into, &range.type, sizeof range.type);
  if (which == kIsManaged) std::memset(into, 0, 4);
  if (which == kDeviceOrdinal) std::memcpy(into, &device, sizeof device);
  if (which == kRangeStart) std::memcpy(into, &base, sizeof base);
  if (which == kRangeSize) std::memcpy(into, &range.bytes, sizeof range.bytes);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT std::int64_t fake_cuda_questions() { return memory().questions; }
// A way to memory that no hook sees, as a runtime with a private table has.
EXPORT CUdeviceptr fake_cuda_private_alloc(std::size_t bytes) { return begin(bytes, kDeviceMemory); }

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* p, std::size_t n) {
  *p = begin(n, kDeviceMemory);
  return 0;
}
EXPORT CUresult cuMemAllocAsync(CUdeviceptr* p, std::size_t n, CUstream /*stream*/) {
  return cuMemAlloc_v2(p, n);
}
// A graph takes down the work of every stream but the default one.
EXPORT CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  *status = stream == nullptr ? 0 : 1;
  return 0;
}
EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, void*) {
  return 0;
}
EXPORT CUresult cuGraphAddNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, int* /*parameters*/) {
  return 0;
}
EXPORT CUresult cuGraphAddNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, const void*, std::size_t, int*) {
  return 0;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr p) { return end(p); }
EXPORT CUresult cuMemHostAlloc(void** p, std::size_t n, unsigned /*flags*/) {
  *p = reinterpret_cast<void*>(begin(n, kHostMemory));
  return 0;
}
EXPORT CUresult cuMemFreeHost(void* p) { return end(reinterpret_cast<CUdeviceptr>(p)); }
EXPORT CUresult cuMemMap(CUdeviceptr p, std::size_t n, std::size_t, unsigned long long, unsigned long long) {
  const std::lock_guard lock(memory().mutex);
  memory().ranges[p] = {n, kDeviceMemory};
  return 0;
}
EXPORT CUresult cuMemUnmap(CUdeviceptr p, std::size_t /*n*/) {
  const std::lock_guard lock(memory().mutex);
  return memory().ranges.erase(p) == 1 ? 0 : 1;
}
EXPORT CUresult cuPointerGetAttributes(unsigned count, int* which, void** into, CUdeviceptr pointer) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  ++all.questions;
  CUdeviceptr base = 0;
  Range range{0, 0};
  for (const auto& [begin, one] : all.ranges) {
    if (begin <= pointer && pointer < begin + one.bytes) {
      base = begin;
      range = one;
    }
  }
  for (unsigned i = 0; i < count; ++i) answer(which[i], into[i], base, range);
  return 0;
}
EXPORT CUresult cuPointerGetAttribute(void* into, int which, CUdeviceptr pointer) {
  return cuPointerGetAttributes(1, &which, &into, pointer);
}
EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int*) {
  if (std::string_view(name) == "cuGraphAddNode") {  // its second version has one parameter more
    *function = version < 12030 ? reinterpret_cast<void*>(&cuGraphAddNode)
                                : reinterpret_cast<void*>(&cuGraphAddNode_v2);
    return 0;
  }
  const std::map<std::string, void*> table{
      {"cuMemAlloc", reinterpret_cast<void*>(&cuMemAlloc_v2)},
      {"cuMemFree", reinterpret_cast<void*>(&cuMemFree_v2)},
      {"cuMemHostAlloc", reinterpret_cast<void*>(&cuMemHostAlloc)},
      {"cuPointerGetAttribute", reinterpret_cast<void*>(&cuPointerGetAttribute)},
      {"cuGetProcAddress", reinterpret_cast<void*>(&cuGetProcAddress_v2)},
  };
  const auto found = table.find(name);
  *function = found == table.end() ? nullptr : found->second;
  return found == table.end() ? 500 : 0;
}
