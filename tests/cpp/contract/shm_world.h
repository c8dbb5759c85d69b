// Threads that share memory as if they were the ranks of a node: a segment, regions, and the fabric over
// them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/group.h"
#include "base/region.h"
#include "collective/fabric.h"
#include "collective/shm/heap.h"
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

// A member's heap. Those of all members are one memory, which all threads see at the same address.
class CommonHeap final : public collective::shm::Heap {
 public:
  CommonHeap(std::shared_ptr<std::vector<std::byte>> all, std::size_t bytes, int member)
      : all_(std::move(all)), bytes_(bytes), own_(at(member, 0), bytes) {}
  static std::vector<std::shared_ptr<CommonHeap>> of_all(int size, std::size_t bytes) {
    const auto all = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size) * bytes);
    std::vector<std::shared_ptr<CommonHeap>> heaps;
    for (int i = 0; i < size; ++i) heaps.push_back(std::make_shared<CommonHeap>(all, bytes, i));
    return heaps;
  }

  [[nodiscard]] ByteSpan own() const { return own_; }
  [[nodiscard]] std::optional<std::uint64_t> find(ConstByteSpan bytes) const override {
    if (bytes.data() < own_.data() || bytes.data() >= own_.data() + bytes_) return std::nullopt;
    return static_cast<std::uint64_t>(bytes.data() - own_.data());
  }
  [[nodiscard]] std::byte* at(int member, std::uint64_t place) const override {
    return all_->data() + static_cast<std::size_t>(member) * bytes_ + place;
  }

 private:
  const std::shared_ptr<std::vector<std::byte>> all_;
  const std::size_t bytes_;
  const ByteSpan own_;
};
using CommonHeaps = std::vector<std::shared_ptr<CommonHeap>>;

// Makes the fabrics of all members of a node. Ranks differ from indices. `heaps`: one for each member, or
// none.
inline std::vector<std::unique_ptr<collective::Fabric>> shm_fabrics(int size, int first_rank = 10,
                                                                    const CommonHeaps& heaps = {}) {
  const auto memory = segment_memory(size);
  const auto regions = std::make_shared<CommonRegions>();
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
  for (int i = 0; i < size; ++i) {
    Group group;
    for (int rank = 0; rank < size; ++rank) group.ranks.push_back(first_rank + rank);
    group.index = i;
    collective::ShmFabricOptions options{size > 2, CommonRegions::maker(regions, group)};
    if (!heaps.empty()) options.heap = heaps[static_cast<std::size_t>(i)];
    fabrics.push_back(collective::make_shm_fabric(memory, group, std::move(options)));
  }
  return fabrics;
}

}  // namespace roundelay::contract
