#include "collective/shm/shared_heap.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

namespace roundelay::collective {
namespace {

// Beyond all regions (shared_regions.cc).
constexpr std::size_t kHeaps = std::size_t{1} << 62;

}  // namespace

class SharedHeap::Block {
 public:
  Block(std::shared_ptr<SharedHeap> heap, std::size_t place, std::size_t bytes)
      : heap_(std::move(heap)), place_(place), bytes_(bytes) {}
  ~Block() { heap_->give_back(place_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  const std::shared_ptr<SharedHeap> heap_;
  const std::size_t place_, bytes_;
};

SharedHeap::SharedHeap(std::shared_ptr<const platform::SharedMemory> memory, const Group& group,
                       std::size_t bytes)
    : memory_(std::move(memory)),
      segment_(memory_->span().data(), group.size()),
      index_(static_cast<std::size_t>(group.index)),
      bytes_(bytes),
      free_{{0, bytes}} {}

Status SharedHeap::map() {
  const auto members = static_cast<std::size_t>(segment_.members());
  auto heaps = memory_->map_part(kHeaps, members * bytes_);
  if (!heaps.ok()) return heaps.status();
  ROUNDELAY_RETURN_IF_ERROR(heaps->copy_in_children(index_ * bytes_, bytes_));
  heaps_ = std::move(heaps).value();
  base_.store(heaps_.span().data(), std::memory_order_release);
  segment_.progress(static_cast<int>(index_)).reaches.store(bytes_, std::memory_order_release);
  return {};
}

Result<RegionPtr> SharedHeap::allocate(std::size_t bytes) {
  const std::size_t whole = shm::Segment::whole_pages_up(bytes);
  std::optional<std::size_t> place;
  {
    const MutexLock lock(mutex_);
    if (base_.load(std::memory_order_relaxed) == nullptr) ROUNDELAY_RETURN_IF_ERROR(map());
    place = take(whole);
  }
  if (!place) {
    return Status::unavailable("this rank's part of the node's memory has no " + std::to_string(bytes) +
                               " bytes in one piece");
  }
  auto region = std::make_shared<Region>();
  region->memory = std::make_shared<Block>(shared_from_this(), *place, whole);
  ROUNDELAY_RETURN_IF_ERROR(memory_->allocate(kHeaps + index_ * bytes_ + *place, whole));
  region->own = {at(static_cast<int>(index_), *place), bytes};
  return RegionPtr(std::move(region));
}

std::optional<std::uint64_t> SharedHeap::find(ConstByteSpan bytes) const {
  const std::byte* const base = base_.load(std::memory_order_acquire);
  if (base == nullptr) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(base + index_ * bytes_);
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (first < begin || first - begin >= bytes_) return std::nullopt;
  for (int member = 0; member < segment_.members(); ++member) {
    if (segment_.progress(member).reaches.load(std::memory_order_acquire) != bytes_) return std::nullopt;
  }
  return first - begin;
}

// The first free part that is large enough.
std::optional<std::size_t> SharedHeap::take(std::size_t bytes) {
  const auto found = std::ranges::find_if(free_, [&](const auto& part) { return part.second >= bytes; });
  if (found == free_.end()) return std::nullopt;
  const auto [place, size] = *found;
  free_.erase(found);
  if (size > bytes) free_.emplace(place + bytes, size - bytes);
  return place;
}

void SharedHeap::give_back(std::size_t place, std::size_t bytes) {
  memory_->discard(kHeaps + index_ * bytes_ + place, bytes);
  const MutexLock lock(mutex_);
  auto part = free_.emplace(place, bytes).first;
  if (const auto next = std::next(part); next != free_.end() && place + bytes == next->first) {
    part->second += next->second;
    free_.erase(next);
  }
  if (part == free_.begin()) return;
  if (const auto before = std::prev(part); before->first + before->second == place) {
    before->second += part->second;
    free_.erase(part);
  }
}

std::size_t heap_bytes(const Group& group) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  return pages / static_cast<std::size_t>(group.size()) * page;
}

}  // namespace roundelay::collective
