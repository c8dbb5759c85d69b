// Divides a shard among the members of each level between nodes, in whole blocks, and finds the sizes of the
// messages. Pure; equal on all ranks that have the same shard.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "base/status.h"
#include "compress/technique.h"
#include "kernels/quantise.h"

namespace roundelay::compress::quantised {

// Returns each member's part of a slice that begins with a block. Later parts may be shorter, or empty.
[[nodiscard]] inline std::vector<Slice> parts_of(const Slice& whole, int members) {
  using kernels::EightBits;
  const auto each = static_cast<std::size_t>(members);
  const std::size_t blocks = (EightBits{whole.count}.blocks() + each - 1) / each;
  std::vector<Slice> parts;
  for (std::size_t member = 0; member < each; ++member) {
    const std::size_t first = std::min(whole.count, member * blocks * EightBits::kBlock);
    const std::size_t end = std::min(whole.count, first + blocks * EightBits::kBlock);
    parts.push_back({whole.first + first, end - first});
  }
  return parts;
}

// Returns the parts that are left of a slice when it has been divided over these levels, in its order.
[[nodiscard]] inline std::vector<Slice> leaves_of(const Slice& whole, std::span<const int> levels) {
  if (levels.empty()) return {whole};
  std::vector<Slice> leaves;
  for (const Slice& part : parts_of(whole, levels.front())) {
    const std::vector<Slice> some = leaves_of(part, levels.subspan(1));
    leaves.insert(leaves.end(), some.begin(), some.end());
  }
  return leaves;
}

// Returns the bytes of the messages of these parts.
[[nodiscard]] inline std::size_t message_bytes(std::span<const Slice> parts) {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0}, [](std::size_t sum, const Slice& part) {
    return sum + kernels::EightBits{part.count}.bytes();
  });
}

// The most numbers of a tile: one in fp32 fits into a core's own cache, beside the residual's.
inline constexpr std::size_t kTile = 64 * kernels::EightBits::kBlock;

// Calls `work(tile, bytes)` for the tiles of a part, in order, until one fails. `bytes` is where the tile
// begins in the part's message.
template <class Work>
[[nodiscard]] Status for_tiles(const Slice& part, Work&& work) {
  for (std::size_t first = 0; first < part.count; first += kTile) {
    const Slice tile{part.first + first, std::min(kTile, part.count - first)};
    ROUNDELAY_RETURN_IF_ERROR(work(tile, kernels::EightBits{first}.bytes()));
  }
  return {};
}

}  // namespace roundelay::compress::quantised
