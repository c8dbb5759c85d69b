// Pairs of a value and its index: a message that has some elements of an array. Thread-safe; allocates
// nothing. It takes floating types only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/chunks.h"

namespace roundelay::kernels {

// The form of a message's indices, which ascend. The long form has 32 bits for each. The short form cuts the
// array into blocks of 65536 elements. It begins with the number of indices up to the end of each block, 32
// bits each; then each index has 16 bits, counted from its block's first element.
struct IndexForm {
  static constexpr std::size_t kBlock = std::size_t{1} << 16;

  std::size_t elements = 0;  // the array's elements, fewer than 2^32
  std::size_t count = 0;     // the number of indices
  bool is_short = false;

  // Returns the number of blocks of the short form, and that of the form itself.
  [[nodiscard]] constexpr std::size_t blocks() const {
    return is_short ? (elements + kBlock - 1) / kBlock : 0;
  }
  [[nodiscard]] constexpr std::size_t bytes() const {
    if (!is_short) return count * sizeof(std::uint32_t);
    return blocks() * sizeof(std::uint32_t) + count * sizeof(std::uint16_t);
  }
};

// The places of a message's pairs. `overflow` is a number of the message that is not finite after an
// overflow.
struct Pairs {
  float* overflow = nullptr;
  std::byte* values = nullptr;      // aligned to their type
  std::uint32_t* words = nullptr;   // the long form's indices, or the ends of the short form's blocks
  std::uint16_t* narrow = nullptr;  // the short form's indices
  DType type = DType::kFloat32;     // the type of the values
  IndexForm form;
};

// Returns the pairs whose indices begin at `indices`, aligned to 4 bytes.
[[nodiscard]] inline Pairs pairs_at(float* overflow, std::byte* values, std::byte* indices, DType type,
                                    IndexForm form) {
  auto* const words = reinterpret_cast<std::uint32_t*>(indices);
  return {overflow, values, words, reinterpret_cast<std::uint16_t*>(words + form.blocks()), type, form};
}

// Moves the residual's elements at these indices into the message, as take_rounded() does: each is rounded
// once, and what the rounding loses stays. Sets the momentum there to zero. The indices ascend, and are as
// many as the form says. The residual has residual_type(pairs.type).
void take_pairs(const Pairs& pairs, const ResidualState& kept, std::span<const std::int64_t> indices);

// Adds prescale(value) of each pair to its element of `sums`, which have residual_type(pairs.type). A NaN
// becomes the type's one quiet NaN. False: the bytes are no indices of the array; some may have been added.
[[nodiscard]] bool add_pairs(void* sums, const Pairs& pairs, Scale prescale);

}  // namespace roundelay::kernels
