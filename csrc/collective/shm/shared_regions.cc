#include "collective/shm/shared_regions.h"

#include <set>
#include <string>
#include <utility>

#include "base/annotations.h"
#include "collective/shm/segment.h"

namespace roundelay::collective {
namespace {

// A region lies at its key times 2^kRegionBits. The memory between regions is never allocated and costs
// nothing.
constexpr int kRegionBits = 40;
constexpr std::uint64_t kKeys = 1ULL << (62 - kRegionBits);

// The keys of this member's regions. Two regions with one key would be the same memory. Thread-safe.
class KeysInUse {
 public:
  // Returns false if the key is in use.
  [[nodiscard]] bool add(std::uint64_t key) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return keys_.insert(key).second;
  }
  void remove(std::uint64_t key) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    keys_.erase(key);
  }

 private:
  Mutex mutex_;
  std::set<std::uint64_t> keys_ GUARDED_BY(mutex_);
};

// Removes the key at its end.
class UseOfKey {
 public:
  UseOfKey(std::shared_ptr<KeysInUse> keys, std::uint64_t key) : keys_(std::move(keys)), key_(key) {}
  UseOfKey(UseOfKey&&) = default;
  ~UseOfKey() {
    if (keys_) keys_->remove(key_);
  }

 private:
  std::shared_ptr<KeysInUse> keys_;
  std::uint64_t key_;
};

// A mapping of all members' parts. It gives the pages of this member's own part back at its end.
class Mapping {
 public:
  Mapping(UseOfKey key, platform::SharedMemory memory, std::size_t own_offset, std::size_t own_bytes)
      : key_(std::move(key)), memory_(std::move(memory)), own_offset_(own_offset), own_bytes_(own_bytes) {}
  ~Mapping() { memory_.discard(own_offset_, own_bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] ByteSpan span() const { return memory_.span(); }

 private:
  const UseOfKey key_;  // the last to go
  const platform::SharedMemory memory_;
  const std::size_t own_offset_, own_bytes_;
};

}  // namespace

RegionMaker shared_regions(std::shared_ptr<const platform::SharedMemory> segment, const Group& group,
                           std::shared_ptr<SharedHeap> heap) {
  return [keys = std::make_shared<KeysInUse>(), segment = std::move(segment), group, heap = std::move(heap)](
             std::uint64_t key, std::size_t bytes) -> Result<RegionPtr> {
    if (key == 0) return heap->allocate(bytes);
    const std::size_t members = group.ranks.size(), index = static_cast<std::size_t>(group.index);
    const std::size_t each = shm::Segment::whole_pages_up(bytes);
    if (key >= kKeys || each > (std::size_t{1} << kRegionBits) / members) {
      return Status::unavailable("a region of " + std::to_string(bytes) + " bytes with key " +
                                 std::to_string(key) + " has no place in shared memory");
    }
    if (!keys->add(key)) {
      return Status::unavailable("somebody still has a tensor in this rank's last region with key " +
                                 std::to_string(key));
    }
    UseOfKey use(keys, key);
    auto memory = segment->map_part(static_cast<std::size_t>(key) << kRegionBits, each * members);
    if (!memory.ok()) return memory.status();
    ROUNDELAY_RETURN_IF_ERROR(memory->allocate(index * each, each));
    ROUNDELAY_RETURN_IF_ERROR(memory->copy_in_children(index * each, each));
    const auto mapping =
        std::make_shared<Mapping>(std::move(use), std::move(memory).value(), index * each, each);
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
