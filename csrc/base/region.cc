#include "base/region.h"

#include <sys/mman.h>

#include <string>
#include <utility>

namespace roundelay {
namespace {

RegionPtr region_of(std::uint64_t key, std::byte* data, std::size_t bytes, std::shared_ptr<void> memory) {
  auto region = std::make_shared<Region>();
  region->key = key;
  region->own = {data, bytes};
  region->memory = std::move(memory);
  return region;
}

Status no_memory(std::size_t bytes) {
  return Status::unavailable("no memory for a gradient pool of " + std::to_string(bytes) + " bytes");
}

}  // namespace

Result<RegionPtr> make_private_region(std::uint64_t key, std::size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return no_memory(bytes);
  std::shared_ptr<void> memory(data, [bytes](void* mapped) { ::munmap(mapped, bytes); });
  return region_of(key, static_cast<std::byte*>(data), bytes, std::move(memory));
}

Result<RegionPtr> make_gpu_region(GpuRuntime& runtime, int gpu, std::uint64_t key, std::size_t bytes) {
  Result<GpuMemory> memory = runtime.allocate(gpu, bytes);
  if (!memory.ok()) {
    return Status::unavailable(no_memory(bytes).message() + " on GPU " + std::to_string(gpu) + ": " +
                               memory.status().message());
  }
  std::byte* const data = memory->get();
  return region_of(key, data, bytes, std::move(memory).value());
}

}  // namespace roundelay
