#include "platform/device/allocation_table.h"

#include <sched.h>

namespace roundelay::pointers {
namespace {

constexpr auto kSees = std::memory_order_acquire;
constexpr auto kShows = std::memory_order_release;
constexpr unsigned kDeviceBits = 32;

std::uint64_t packed(MemoryPlace place) {
  return std::uint64_t{static_cast<std::uint8_t>(place.kind)} << kDeviceBits |
         static_cast<std::uint32_t>(place.device);
}

MemoryPlace unpacked(std::uint64_t bits, std::uint64_t context) {
  return {static_cast<MemoryKind>(bits >> kDeviceBits), static_cast<int>(static_cast<std::uint32_t>(bits)),
          context};
}

}  // namespace

// Makes the version odd while it exists.
class AllocationTable::Writing {
 public:
  explicit Writing(std::atomic<std::uint64_t>& version) : version_(version) {
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  ~Writing() { version_.store(version_.load(std::memory_order_relaxed) + 1, kShows); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  std::atomic<std::uint64_t>& version_;
};

void AllocationTable::Entry::set(const Entry& other) {
  base.store(other.base.load(std::memory_order_relaxed), kShows);
  end.store(other.end.load(std::memory_order_relaxed), kShows);
  place.store(other.place.load(std::memory_order_relaxed), kShows);
  context.store(other.context.load(std::memory_order_relaxed), kShows);
}

std::size_t AllocationTable::before(std::uintptr_t address) const {
  std::size_t low = 0, high = size_.load(kSees);
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (entries_[middle].end.load(kSees) <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::optional<MemoryPlace> AllocationTable::look_up(std::uintptr_t address) const {
  const std::size_t at = before(address);
  if (at >= size_.load(kSees) || entries_[at].base.load(kSees) > address) return std::nullopt;
  return unpacked(entries_[at].place.load(kSees), entries_[at].context.load(kSees));
}

std::optional<MemoryPlace> AllocationTable::find(std::uintptr_t address) const {
  while (true) {
    const std::uint64_t version = version_.load(kSees);
    if (version % 2 == 0) {
      const std::optional<MemoryPlace> found = look_up(address);
      if (version_.load(std::memory_order_relaxed) == version) return found;
    }
    sched_yield();  // the writer may need this core
  }
}

void AllocationTable::remove(std::size_t first, std::size_t end) {
  if (first == end) return;
  const std::size_t size = size_.load(std::memory_order_relaxed);
  for (std::size_t i = end; i < size; ++i) entries_[first + i - end].set(entries_[i]);
  size_.store(size - (end - first), kShows);
}

void AllocationTable::erase(std::uintptr_t base, std::size_t bytes) {
  const std::size_t first = before(base);
  std::size_t end = first;
  const auto begins_inside = [&](const Entry& entry) {
    return entry.base.load(std::memory_order_relaxed) - base < bytes ||
           entry.base.load(std::memory_order_relaxed) <= base;
  };
  while (end < size() && bytes > 0 && begins_inside(entries_[end])) ++end;
  if (first == end) return;
  const Writing writing(version_);
  remove(first, end);
}

void AllocationTable::insert(const Allocation& allocation) {
  erase(allocation.base, allocation.bytes);
  if (size() == kMost) clear();
  const Writing writing(version_);
  const std::size_t at = before(allocation.base), size = size_.load(std::memory_order_relaxed);
  for (std::size_t i = size; i > at; --i) entries_[i].set(entries_[i - 1]);
  entries_[at].base.store(allocation.base, kShows);
  entries_[at].end.store(allocation.end(), kShows);
  entries_[at].place.store(packed(allocation.place), kShows);
  entries_[at].context.store(allocation.place.context, kShows);
  size_.store(size + 1, kShows);
}

void AllocationTable::clear() {
  const Writing writing(version_);
  size_.store(0, kShows);
}

}  // namespace roundelay::pointers
