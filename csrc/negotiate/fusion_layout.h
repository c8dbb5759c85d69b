// Lays out a fused operation's tensors in the fusion buffer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace roundelay::negotiate {

// Slots start at multiples of this.
inline constexpr std::size_t kSlotAlignment = 64;  // a cache line; a multiple of every element's size

// Bytes from the end of a slot to the start of the next one.
constexpr std::size_t padding_after(std::size_t bytes) {
  return (kSlotAlignment - bytes % kSlotAlignment) % kSlotAlignment;
}

// The place of one tensor. The padding after it is zero (pack()), so that a collective can run over all slots
// at once.
struct FusionSlot {
  std::size_t offset = 0;  // bytes
  std::size_t bytes = 0;   // its size without padding
  friend bool operator==(const FusionSlot&, const FusionSlot&) = default;
};

struct FusionLayout {
  std::vector<FusionSlot> slots;
  std::size_t bytes = 0;  // the size of all slots, with padding
};

// Returns one slot for each size in bytes, in the order given.
FusionLayout make_fusion_layout(std::span<const std::size_t> sizes);

}  // namespace roundelay::negotiate
