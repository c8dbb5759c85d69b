#include "collective/shm/shared_regions.h"

#include <string>
#include <utility>

#include "collective/shm/segment.h"

namespace roundelay::collective {
namespace {

// A region lies at its key times 2^kRegionBits. The memory between regions is never allocated and costs
// nothing.
constexpr int kRegionBits = 40;
constexpr std::uint64_t kKeys = 1ULL << (62 - kRegionBits);

// A mapping of all members' parts. It gives the pages of this member's own part back at its end.
class Mapping {
 public:
  Mapping(platform::SharedMemory memory, std::size_t own_offset, std::size_t own_bytes)
      : memory_(std::move(memory)), own_offset_(own_offset), own_bytes_(own_bytes) {}
  ~Mapping() { memory_.discard(own_offset_, own_bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] ByteSpan span() const { return memory_.span(); }

 private:
  const platform::SharedMemory memory_;
  const std::size_t own_offset_, own_bytes_;
};

}  // namespace

RegionMaker shared_regions(std::shared_ptr<const platform::SharedMemory> segment, const Group& group) {
  return [segment = std::move(segment), group](std::uint64_t key, std::size_t bytes) -> Result<RegionPtr> {
    const std::size_t members = group.ranks.size(), index = static_cast<std::size_t>(group.index);
    const std::size_t each = shm::Segment::whole_pages_up(bytes);
    if (key == 0 || key >= kKeys || each > (std::size_t{1} << kRegionBits) / members) {
      return Status::unavailable("a region of " + std::to_string(bytes) + " bytes with key " +
                                 std::to_string(key) + " has no place in shared memory");
    }
    auto memory = segment->map_part(static_cast<std::size_t>(key) << kRegionBits, each * members);
    if (!memory.ok()) return memory.status();
    ROUNDELAY_RETURN_IF_ERROR(memory->allocate(index * each, each));
    ROUNDELAY_RETURN_IF_ERROR(memory->copy_in_children(index * each, each));
    const auto mapping = std::make_shared<Mapping>(std::move(memory).value(), index * each, each);
    auto region = std::make_shared<Region>();
    region->key = key;
    region->own = mapping->span().subspan(index * each, bytes);
    region->ranks = group.ranks;
    for (std::size_t member = 0; member < members; ++member) {
      region->parts.push_back(mapping->span().data() + member * each);
    }
    region->memory = mapping;
    return RegionPtr(std::move(region));
  };
}

}  // namespace roundelay::collective
