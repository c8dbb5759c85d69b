// Cuts a call's bytes into rounds, and the bytes of a round into the members' shares.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace roundelay::collective::shm {

inline constexpr std::size_t kLine = 64;  // shares of a slot begin on cache lines: different cores write them
// The number of bytes that are reduced at a time. With every member's part they stay in the first-level
// cache.
inline constexpr std::size_t kBlock = 16 << 10;

// Cuts `bytes` bytes into parts of `each`; the last one may be shorter, and those after it are empty.
struct Cuts {
  std::size_t bytes, each;

  [[nodiscard]] std::uint64_t count() const { return (bytes + each - 1) / each; }
  [[nodiscard]] ByteRange operator[](std::uint64_t i) const {
    const std::size_t offset = std::min(bytes, static_cast<std::size_t>(i) * each);
    return {offset, std::min(each, bytes - offset)};
  }
};

// Returns where parts of these sizes begin when they follow each other.
inline std::vector<std::size_t> offsets_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> offsets(sizes.size());
  for (std::size_t i = 1; i < sizes.size(); ++i) offsets[i] = offsets[i - 1] + sizes[i - 1];
  return offsets;
}

constexpr std::size_t whole_lines_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
constexpr std::size_t whole_lines_down(std::size_t bytes) { return bytes / kLine * kLine; }

// Returns the members' shares of a round of `bytes` bytes, in whole lines; the last ones may be short or
// empty.
inline Cuts shares(std::size_t bytes, int members) {
  const auto n = static_cast<std::size_t>(members);
  return {bytes, std::max(kLine, whole_lines_up((bytes + n - 1) / n))};
}

}  // namespace roundelay::collective::shm
