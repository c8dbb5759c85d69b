// Divides work among blocks of threads. This is host code and needs no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/gpu.h"

namespace roundelay::kernels::cuda {

inline constexpr int kPackBytes = 16;  // the widest load (a pack)
inline constexpr int kUnroll = 4;      // packs that a thread loads at once
inline constexpr int kMostThreads = 256;
inline constexpr int kLeastThreads = 64;

// One copy of a launch.
struct CopyItem {
  std::byte* to;
  const std::byte* from;
  std::uint64_t count;        // elements, or bytes if the group copies bytes
  std::uint32_t first_block;  // the first of the launch's blocks that work on this copy
  std::uint8_t width;  // the access that both addresses allow: kPackBytes, else the element's size, else 1
};

// Copies that one launch can do: all have the same two types, or all copy bytes.
struct CopyGroup {
  DType to_type = DType::kUInt8;
  DType from_type = DType::kUInt8;
  bool bytes = false;
  int threads = kMostThreads;   // threads of a block
  std::uint64_t chunk = 0;      // elements, or bytes, of a block
  std::vector<CopyItem> items;  // first_block is not set yet
};

// Returns how many elements a pack holds: elements of the wider type fill it.
constexpr int pack_elements(std::size_t to_size, std::size_t from_size) {
  return kPackBytes / static_cast<int>(to_size > from_size ? to_size : from_size);
}

// The work of a block: how many threads it has, and how many packs each of them takes.
struct BlockShape {
  int threads = kMostThreads;
  int packs = 1;
  [[nodiscard]] std::uint64_t of_block() const {
    return static_cast<std::uint64_t>(threads) * static_cast<std::uint64_t>(packs);
  }
};

// Returns blocks for so many packs: large ones, whose threads have `most` packs on their way at once, if
// these keep all multiprocessors busy; else smaller ones.
BlockShape block_shape(std::uint64_t packs, int most, int multiprocessors);

// Returns CopyItem::width for a reduction of elements of `size` bytes.
std::uint8_t common_width(const std::byte* to, std::span<const std::byte* const> parts, std::size_t size);

// Groups the copies into launches and leaves out empty ones. With `identity`, nothing is scaled.
std::vector<CopyGroup> plan_copies(std::span<const GpuCopy> copies, bool identity, int multiprocessors);

struct CopyLaunch {
  std::size_t items = 0;
  std::uint32_t blocks = 0;
};
// Sets first_block of items[0..n), the copies of the next launch: at most `capacity`, and as many as a launch
// has blocks for. Returns n and the number of blocks. `chunk` is CopyGroup::chunk.
CopyLaunch next_launch(std::span<CopyItem> items, std::uint64_t chunk, std::size_t capacity);

}  // namespace roundelay::kernels::cuda
