// Between tensors and the fusion buffer: one copy each way.
#pragma once

#include <cstddef>
#include <span>

#include "fuse/layout.h"

namespace roundelay::fuse {

struct PackItem {
  const std::byte* source = nullptr;  // slot.bytes, contiguous, may be unaligned
  Slot slot;
};

struct UnpackItem {
  std::byte* destination = nullptr;
  Slot slot;
};

// Copies every source to its slot of `buffer` and zeroes the padding behind it.
void pack(std::span<const PackItem> items, std::byte* buffer);

// Copies every slot to its destination.
void unpack(std::span<const UnpackItem> items, const std::byte* buffer);

}  // namespace roundelay::fuse
