// Between tensors and the fusion buffer: one copy each way, with scaling inside it.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "fuse/layout.h"

namespace roundelay::fuse {

struct PackItem {
  const std::byte* source = nullptr;  // contiguous, may be unaligned
  std::size_t count = 0;              // elements; slot.bytes / size_of(dtype)
  Slot slot;
};

struct UnpackItem {
  std::byte* destination = nullptr;
  std::size_t count = 0;
  Slot slot;
};

// Copies every source, scaled, to its slot of `buffer` and zeroes the padding behind it.
void pack(std::span<const PackItem> items, DType dtype, Scale prescale, std::byte* buffer);

// Copies every slot, scaled, to its destination.
void unpack(std::span<const UnpackItem> items, DType dtype, Scale postscale, const std::byte* buffer);

}  // namespace roundelay::fuse
