// Divides a shard among the members of each level between nodes, in whole blocks, and finds the sizes of the
// messages. Pure; equal on all ranks that have the same shard.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

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

}  // namespace roundelay::compress::quantised
