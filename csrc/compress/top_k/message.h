// The form of topk's messages. A rank gathers its message with those of the ranks that have the same place in
// their nodes (compress/shards.h), and so the same shard. A message begins with the norm of the shard's
// residual (fp32), which is not finite after an overflow. Then come the values of the shard's dense elements,
// those of the chosen ones, and the indices of the chosen ones. The messages that are gathered together have
// the same size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace roundelay::compress::top_k {

// Writes and reads the ascending indices of a shard's elements. The long form has 32 bits for each. The short
// form cuts the shard into blocks of 65536 elements. It begins with the number of indices in each block, 32
// bits each; then each index has 16 bits, counted from its block's first element.
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
  // Reads the indices. False: the bytes are no ascending indices of the shard; some may have been written
  // then.
  [[nodiscard]] bool read(const std::byte* from, std::span<std::uint32_t> indices) const;

 private:
  [[nodiscard]] std::size_t blocks() const { return (elements_ + kBlock - 1) / kBlock; }
  [[nodiscard]] bool read_short(const std::byte* from, std::span<std::uint32_t> indices) const;

  std::size_t elements_, count_;
  bool short_;
};

// The places at which the parts of a message begin, and its size, in bytes. The size is a multiple of 8, so
// that messages lie side by side. `values`: the number of dense and chosen elements.
struct MessageLayout {
  static constexpr std::size_t kValuesAt = 8;

  MessageLayout(std::size_t values, DType wire, const IndexCode& code)
      : indices_at((kValuesAt + values * size_of(wire) + 3) / 4 * 4),
        bytes((indices_at + code.bytes() + 7) / 8 * 8) {}

  std::size_t indices_at, bytes;
};

}  // namespace roundelay::compress::top_k
