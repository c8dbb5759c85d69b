// Copies between tensors and the fusion buffer. The caller owns all memory.
#pragma once

#include <cstddef>
#include <span>

#include "negotiate/fusion_layout.h"

namespace roundelay::execute {

struct PackItem {
  const std::byte* source = nullptr;  // slot.bytes contiguous bytes of any alignment
  negotiate::FusionSlot slot;
};

struct UnpackItem {
  std::byte* destination = nullptr;  // slot.bytes contiguous bytes of any alignment
  negotiate::FusionSlot slot;
};

// Copies every source to its slot of `buffer` and zeroes the padding after it.
void pack(std::span<const PackItem> items, std::byte* buffer);

// Copies every slot to its destination.
void unpack(std::span<const UnpackItem> items, const std::byte* buffer);

}  // namespace roundelay::execute
