// Where the members of a fused operation lie in the fusion buffer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace roundelay::fuse {

inline constexpr std::size_t kSlotAlignment = 64;  // a cache line; a multiple of every element's size

constexpr std::size_t padding_after(std::size_t bytes) {
  return (kSlotAlignment - bytes % kSlotAlignment) % kSlotAlignment;
}

// Every slot starts aligned. What lies between its end and the next aligned address is padding, which pack()
// fills with zeros, so that a collective can run over the whole range.
struct Slot {
  std::size_t offset = 0;  // bytes
  std::size_t bytes = 0;   // without padding
  friend bool operator==(const Slot&, const Slot&) = default;
};

struct Layout {
  std::vector<Slot> slots;
  std::size_t bytes = 0;  // with padding
};

// One slot for each size, in the order given.
Layout make_layout(std::span<const std::size_t> sizes);

}  // namespace roundelay::fuse
