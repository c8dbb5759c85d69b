#include "collective/shm/shared_regions.h"

#include <string>
#include <utility>

#include "collective/shm/segment.h"

namespace roundelay::collective {
namespace {

// Where the region of a key lies. The memory between is never allocated and costs nothing.
constexpr int kRegionBits = 40;
constexpr std::uint64_t kKeys = 1ULL << (62 - kRegionBits);

constexpr std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t kPage = shm::Segment::kPageBytes;
  return (bytes + kPage - 1) / kPage * kPage;
}

struct Part {
  platform::SharedMemory memory;
  std::size_t offset, bytes;  // this member's

  ~Part() { memory.discard(offset, bytes); }
};

}  // namespace

RegionMaker shared_regions(std::shared_ptr<const platform::SharedMemory> segment, const Group& group) {
  return [segment = std::move(segment), members = static_cast<std::size_t>(group.size()),
          index = static_cast<std::size_t>(group.index)](std::uint64_t key,
                                                         std::size_t bytes) -> Result<RegionPtr> {
    const std::size_t each = whole_pages(bytes);
    if (key == 0 || key >= kKeys || each > (std::size_t{1} << kRegionBits) / members) {
      return Status::unavailable("a region of " + std::to_string(bytes) + " bytes with key " +
                                 std::to_string(key) + " has no place in shared memory");
    }
    auto memory = segment->map_part(static_cast<std::size_t>(key) << kRegionBits, each * members);
    if (!memory.ok()) return memory.status();
    ROUNDELAY_RETURN_IF_ERROR(memory->allocate(index * each, each));
    ROUNDELAY_RETURN_IF_ERROR(memory->copy_in_children(index * each, each));
    const auto part = std::make_shared<Part>(std::move(memory).value(), index * each, each);
    auto region = std::make_shared<Region>();
    region->key = key;
    region->own = part->memory.span().subspan(index * each, bytes);
    for (std::size_t member = 0; member < members; ++member) {
      region->parts.push_back(part->memory.span().data() + member * each);
    }
    region->memory = part;
    return RegionPtr(std::move(region));
  };
}

}  // namespace roundelay::collective
