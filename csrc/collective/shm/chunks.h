// How a call's bytes are cut into rounds, and a round's among members.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace roundelay::collective::shm {

inline constexpr std::size_t kLine = 64;  // shares of one slot, written by different cores, begin on lines
// Reduced at a time: with every member's part it stays in the first-level cache.
inline constexpr std::size_t kBlock = 16 << 10;

// Cuts of a range of bytes, all but the last of the same length.
struct Cuts {
  std::size_t bytes, each;

  [[nodiscard]] std::uint64_t count() const { return (bytes + each - 1) / each; }
  [[nodiscard]] ByteRange operator[](std::uint64_t i) const {
    const std::size_t offset = std::min(bytes, static_cast<std::size_t>(i) * each);
    return {offset, std::min(each, bytes - offset)};
  }
};

// Where each of these begins when they lie one behind the other.
inline std::vector<std::size_t> offsets_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> offsets(sizes.size());
  for (std::size_t i = 1; i < sizes.size(); ++i) offsets[i] = offsets[i - 1] + sizes[i - 1];
  return offsets;
}

constexpr std::size_t whole_lines_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
constexpr std::size_t whole_lines_down(std::size_t bytes) { return bytes / kLine * kLine; }

// So many members' shares of a round, in whole lines; the last ones may be short or empty.
inline Cuts shares(std::size_t bytes, int members) {
  const auto n = static_cast<std::size_t>(members);
  return {bytes, std::max(kLine, whole_lines_up((bytes + n - 1) / n))};
}

}  // namespace roundelay::collective::shm
