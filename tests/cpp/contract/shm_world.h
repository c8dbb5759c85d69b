// Threads that share memory as if they were the ranks of a node: a segment, regions, and the fabric over
// them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/group.h"
#include "base/region.h"
#include "collective/fabric.h"
#include "collective/shm/segment.h"
#include "collective/shm/shm_fabric.h"
#include "tests/cpp/zeroed_pages.h"

namespace roundelay::contract {

// Regions in memory that all threads see at the same address, so that TSan sees the accesses.
class CommonRegions {
 public:
  // Returns the maker of one member of the group. All members have makers of the same object.
  static RegionMaker maker(std::shared_ptr<CommonRegions> regions, Group group) {
    return [regions = std::move(regions), group = std::move(group)](std::uint64_t key,
                                                                    std::size_t bytes) -> Result<RegionPtr> {
      return regions->make(group, key, bytes);
    };
  }

 private:
  RegionPtr make(const Group& group, std::uint64_t key, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto& memory = memory_[key];
    if (!memory) memory = std::make_shared<std::vector<std::byte>>(group.ranks.size() * bytes);
    auto region = std::make_shared<Region>();
    region->key = key;
    region->own = ByteSpan(*memory).subspan(static_cast<std::size_t>(group.index) * bytes, bytes);
    region->ranks = group.ranks;
    for (std::size_t i = 0; i < group.ranks.size(); ++i) region->parts.push_back(memory->data() + i * bytes);
    region->memory = memory;
    return region;
  }

  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<std::vector<std::byte>>> memory_;
};

// Makes the fabrics of all members of a node. Ranks differ from indices.
inline std::vector<std::unique_ptr<collective::Fabric>> shm_fabrics(int size, int first_rank = 10) {
  const auto memory = segment_memory(size);
  const auto regions = std::make_shared<CommonRegions>();
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
  for (int i = 0; i < size; ++i) {
    Group group;
    for (int rank = 0; rank < size; ++rank) group.ranks.push_back(first_rank + rank);
    group.index = i;
    fabrics.push_back(
        collective::make_shm_fabric(memory, group, {size > 2, CommonRegions::maker(regions, group)}));
  }
  return fabrics;
}

}  // namespace roundelay::contract
