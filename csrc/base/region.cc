#include "base/region.h"

#include <sys/mman.h>

#include <string>

namespace roundelay {

Result<RegionPtr> make_private_region(std::uint64_t key, std::size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Status::unavailable("no memory for a gradient pool of " + std::to_string(bytes) + " bytes");
  }
  auto region = std::make_shared<Region>();
  region->key = key;
  region->own = {static_cast<std::byte*>(data), bytes};
  region->memory = std::shared_ptr<void>(data, [bytes](void* memory) { ::munmap(memory, bytes); });
  return RegionPtr(std::move(region));
}

}  // namespace roundelay
