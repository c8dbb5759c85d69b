// How work is cut into blocks of threads: host code, without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/gpu.h"

namespace roundelay::kernels::cuda {

inline constexpr int kPackBytes = 16;  // the widest load
inline constexpr int kUnroll = 4;      // packs that a thread has under way at once
inline constexpr int kMostThreads = 256;
inline constexpr int kLeastThreads = 64;

// One of a launch's copies.
struct CopyItem {
  std::byte* to;
  const std::byte* from;
  std::uint64_t count;        // elements, or bytes
  std::uint32_t first_block;  // of the launch, that works on it
  std::uint8_t width;         // what both addresses allow at once: kPackBytes (packs), else elements, else 1
};

// Copies that one launch can do: of one pair of types, or of bytes whatever they mean.
struct CopyGroup {
  DType to_type = DType::kUInt8;
  DType from_type = DType::kUInt8;
  bool bytes = false;
  int threads = kMostThreads;   // of a block
  std::uint64_t chunk = 0;      // elements, or bytes, that a block works on
  std::vector<CopyItem> items;  // first_block not set yet
};

// Elements of a pack: those of the wider type fill it.
constexpr int pack_elements(std::size_t to_size, std::size_t from_size) {
  return kPackBytes / static_cast<int>(to_size > from_size ? to_size : from_size);
}

// The threads of a block, each of which takes `elements`, so that `count` keep all multiprocessors busy.
int block_threads(std::uint64_t count, int elements, int multiprocessors);

// CopyItem::width for a reduction of elements of `size` bytes.
std::uint8_t common_width(const std::byte* to, std::span<const std::byte* const> parts, std::size_t size);

// Empty items are left out; `identity`: nothing is scaled.
std::vector<CopyGroup> plan_copies(std::span<const GpuCopy> copies, bool identity, int multiprocessors);

// Sets first_block of items[0..n), the next of one launch: as many as fit both limits. Returns n and their
// blocks.
struct CopyLaunch {
  std::size_t items = 0;
  std::uint32_t blocks = 0;
};
CopyLaunch next_launch(std::span<CopyItem> items, std::uint64_t chunk, std::size_t capacity);

}  // namespace roundelay::kernels::cuda
