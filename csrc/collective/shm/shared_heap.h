// Memory of a member that its peers can reach, after a group's segment and regions, in the same memory. A
// member allocates without talking to the others. In each call it tells them where its bytes lie.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/annotations.h"
#include "base/group.h"
#include "base/region.h"
#include "collective/shm/heap.h"
#include "collective/shm/segment.h"
#include "platform/shm/memory.h"

namespace roundelay::collective {

// Thread-safe.
class SharedHeap final : public shm::Heap, public std::enable_shared_from_this<SharedHeap> {
 public:
  // `memory` is that of the group's segment. The members' heaps have `bytes` each, the same on all members.
  SharedHeap(std::shared_ptr<const platform::SharedMemory> memory, const Group& group, std::size_t bytes);
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  // Allocates zeros, as a region without key and parts. The first call maps the heaps of all members, which
  // takes addresses and no memory. Forked children have a copy of their own. Errors: kUnavailable.
  Result<RegionPtr> allocate(std::size_t bytes);

  [[nodiscard]] std::optional<std::uint64_t> find(ConstByteSpan bytes) const override;
  [[nodiscard]] std::byte* at(int member, std::uint64_t place) const override {
    return base_.load(std::memory_order_acquire) + static_cast<std::size_t>(member) * bytes_ + place;
  }

 private:
  // The place of an allocation. It goes back to the heap at its end.
  class Block;

  Status map() REQUIRES(mutex_);
  std::optional<std::size_t> take(std::size_t bytes) REQUIRES(mutex_);
  void give_back(std::size_t place, std::size_t bytes) EXCLUDES(mutex_);

  const std::shared_ptr<const platform::SharedMemory> memory_;
  const shm::Segment segment_;
  const std::size_t index_;
  const std::size_t bytes_;
  Mutex mutex_;
  std::atomic<std::byte*> base_{nullptr};  // where the heaps of all members are mapped; null: nowhere yet
  platform::SharedMemory heaps_ GUARDED_BY(mutex_);
  std::map<std::size_t, std::size_t> free_ GUARDED_BY(mutex_);  // the sizes of free parts, by their places
};

// Returns the size for each member's heap: its share of the node's memory.
[[nodiscard]] std::size_t heap_bytes(const Group& group);

}  // namespace roundelay::collective
