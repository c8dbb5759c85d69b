#include "execute/pack.h"

#include <cstring>

namespace roundelay::execute {
namespace {

void copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(destination, source, bytes);  // an empty tensor may have no memory
}

}  // namespace

void pack(std::span<const PackItem> items, std::byte* buffer) {
  for (const auto& [source, slot] : items) {
    std::byte* const start = buffer + slot.offset;
    copy(start, source, slot.bytes);
    std::memset(start + slot.bytes, 0, negotiate::padding_after(slot.bytes));
  }
}

void unpack(std::span<const UnpackItem> items, const std::byte* buffer) {
  for (const auto& [destination, slot] : items) copy(destination, buffer + slot.offset, slot.bytes);
}

}  // namespace roundelay::execute
