// The message that a rank gathers with those of its place on the other nodes. It begins with the norm of the
// shard's residual (fp32), which is not finite after an overflow. Then come values (the dense elements of the
// shard, and the chosen ones), and the indices of the chosen ones. All messages of a place have the same
// size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace roundelay::compress::top_k {

// Writes ascending indices into a shard, and reads them: 32 bits for each, or 16 bits counted from the first
// element of its block of 65536. Then the numbers of indices in each block come first, 32 bits each.
class IndexCode {
 public:
  static constexpr std::size_t kBlock = std::size_t{1} << 16;

  // `elements`: of the shard, less than 2^32. `count`: the number of indices.
  IndexCode(std::size_t elements, std::size_t count, bool is_short)
      : elements_(elements), count_(count), short_(is_short) {}

  [[nodiscard]] std::size_t bytes() const {
    if (!short_) return count_ * sizeof(std::uint32_t);
    return blocks() * sizeof(std::uint32_t) + count_ * sizeof(std::uint16_t);
  }
  // `to` is aligned to 4 bytes. There are `count` indices.
  void write(std::byte* to, std::span<const std::int64_t> indices) const;
  // Returns whether the bytes are such indices. If not, some of `indices` are written all the same.
  [[nodiscard]] bool read(const std::byte* from, std::span<std::uint32_t> indices) const;

 private:
  [[nodiscard]] std::size_t blocks() const { return (elements_ + kBlock - 1) / kBlock; }
  [[nodiscard]] bool read_short(const std::byte* from, std::span<std::uint32_t> indices) const;

  std::size_t elements_, count_;
  bool short_;
};

// The places of a message's parts, in bytes. Its size is a multiple of 8, so that messages lie side by side.
struct MessageLayout {
  static constexpr std::size_t kValuesAt = 8;

  MessageLayout(std::size_t values, DType wire, const IndexCode& code)
      : indices_at((kValuesAt + values * size_of(wire) + 3) / 4 * 4),
        bytes((indices_at + code.bytes() + 7) / 8 * 8) {}

  std::size_t indices_at, bytes;
};

}  // namespace roundelay::compress::top_k
