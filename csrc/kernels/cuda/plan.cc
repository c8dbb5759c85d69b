#include "kernels/cuda/plan.h"

#include <algorithm>
#include <limits>

namespace roundelay::kernels::cuda {
namespace {

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool divides(std::size_t bytes, const void* pointer) { return address(pointer) % bytes == 0; }

CopyItem bytes_item(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  std::size_t width = kPackBytes;
  while (!divides(width, to) || !divides(width, from)) width /= 2;
  return {to, from, bytes, 0, static_cast<std::uint8_t>(width)};
}

// Appends the copy of some bytes. If both addresses are misaligned by the same amount, a separate item copies
// the first bytes, and the rest is aligned.
void add_bytes(std::vector<CopyItem>& items, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t off = address(to) % kPackBytes;
  const std::uint64_t head = off == address(from) % kPackBytes && off != 0 ? kPackBytes - off : 0;
  if (head != 0 && bytes > head) {
    items.push_back(bytes_item(to, from, head));
    items.push_back(bytes_item(to + head, from + head, bytes - head));
  } else {
    items.push_back(bytes_item(to, from, bytes));
  }
}

CopyItem typed_item(const GpuCopy& copy) {
  const std::size_t to_size = size_of(copy.to_type), from_size = size_of(copy.from_type);
  const auto pack = static_cast<std::size_t>(pack_elements(to_size, from_size));
  std::size_t width = 1;
  if (divides(pack * to_size, copy.to) && divides(pack * from_size, copy.from)) {
    width = kPackBytes;
  } else if (divides(to_size, copy.to) && divides(from_size, copy.from)) {
    width = std::max(to_size, from_size);
  }
  return {copy.to, copy.from, copy.count, 0, static_cast<std::uint8_t>(width)};
}

CopyGroup& group_of(std::vector<CopyGroup>& groups, const GpuCopy& copy, bool bytes) {
  for (CopyGroup& group : groups) {
    if (group.bytes && bytes) return group;
    if (!group.bytes && !bytes && group.to_type == copy.to_type && group.from_type == copy.from_type) {
      return group;
    }
  }
  groups.emplace_back();
  CopyGroup& group = groups.back();
  group.bytes = bytes;
  if (!bytes) {
    group.to_type = copy.to_type;
    group.from_type = copy.from_type;
  }
  return group;
}

}  // namespace

BlockShape block_shape(std::uint64_t packs, int most, int multiprocessors) {
  constexpr std::uint64_t kBusy = 2;  // blocks of a multiprocessor
  const std::uint64_t blocks = kBusy * static_cast<unsigned>(multiprocessors);
  BlockShape shape{kMostThreads, most};
  if (packs >= blocks * shape.of_block()) return shape;
  shape.packs = 1;
  while (shape.threads > kLeastThreads && packs < blocks * shape.of_block()) shape.threads /= 2;
  return shape;
}

std::uint8_t common_width(const std::byte* to, std::span<const std::byte* const> parts, std::size_t size) {
  for (const std::size_t width : {std::size_t{kPackBytes}, size}) {
    const auto fits = [width](const std::byte* part) { return divides(width, part); };
    if (fits(to) && std::all_of(parts.begin(), parts.end(), fits)) return static_cast<std::uint8_t>(width);
  }
  return 1;
}

std::vector<CopyGroup> plan_copies(std::span<const GpuCopy> copies, bool identity, int multiprocessors) {
  std::vector<CopyGroup> groups;
  for (const GpuCopy& copy : copies) {
    const bool bytes = identity && copy.to_type == copy.from_type;
    if (copy.count == 0 || (bytes && copy.to == copy.from)) continue;
    CopyGroup& group = group_of(groups, copy, bytes);
    if (bytes) {
      add_bytes(group.items, copy.to, copy.from, copy.count * size_of(copy.to_type));
    } else {
      group.items.push_back(typed_item(copy));
    }
  }
  for (CopyGroup& group : groups) {
    const auto pack = static_cast<unsigned>(pack_elements(size_of(group.to_type), size_of(group.from_type)));
    std::uint64_t count = 0;
    for (const CopyItem& item : group.items) count += item.count;
    const BlockShape shape = block_shape(count / pack, kUnroll, multiprocessors);
    group.threads = shape.threads;
    group.chunk = shape.of_block() * pack;
  }
  return groups;
}

CopyLaunch next_launch(std::span<CopyItem> items, std::uint64_t chunk, std::size_t capacity) {
  constexpr std::uint64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
  CopyLaunch launch;
  for (CopyItem& item : items.first(std::min(items.size(), capacity))) {
    const std::uint64_t blocks = (item.count + chunk - 1) / chunk;
    if (launch.items != 0 && launch.blocks + blocks > kMostBlocks) break;
    item.first_block = launch.blocks;
    launch.blocks += static_cast<std::uint32_t>(blocks);
    ++launch.items;
  }
  return launch;
}

}  // namespace roundelay::kernels::cuda
