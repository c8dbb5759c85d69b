// Types for untyped memory. All sizes are 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace roundelay {

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<std::byte>;
using ConstByteSpan = std::span<const std::byte>;

// The bytes from `offset` to `offset` + `bytes` of some memory. The user of the range knows which memory.
struct ByteRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// Copies the characters of `text`.
inline Bytes to_bytes(std::string_view text) {
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

// Copies the bytes into a text.
inline std::string to_text(ConstByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace roundelay
