#include "fuse/pack.h"

#include <cassert>
#include <cstring>

#include "kernels/kernels.h"

namespace roundelay::fuse {

void pack(std::span<const PackItem> items, DType dtype, Scale prescale, std::byte* buffer) {
  for (const auto& [source, count, slot] : items) {
    assert(count * size_of(dtype) == slot.bytes);
    std::byte* const start = buffer + slot.offset;
    kernels::scale_copy(start, source, count, dtype, prescale);
    if (const std::size_t padding = padding_after(slot.bytes); padding > 0) {
      std::memset(start + slot.bytes, 0, padding);
    }
  }
}

void unpack(std::span<const UnpackItem> items, DType dtype, Scale postscale, const std::byte* buffer) {
  for (const auto& [destination, count, slot] : items) {
    assert(count * size_of(dtype) == slot.bytes);
    kernels::scale_copy(destination, buffer + slot.offset, count, dtype, postscale);
  }
}

}  // namespace roundelay::fuse
