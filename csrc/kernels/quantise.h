// Numbers in 8 bits. The numbers of a block have one scale, and each is a multiple of it, from -127 to 127.
// Thread-safe; allocates nothing.
#pragma once

#include <cstddef>

namespace roundelay::kernels {

// The form of `count` numbers: for each block its scale (fp32), and a signed byte for each of its numbers.
// Its size is a multiple of 4 bytes. So the numbers from a block on begin bytes() of those before it, and any
// run of blocks may be written and read alone.
struct EightBits {
  static constexpr std::size_t kBlock = 256;  // numbers; a scale costs 1/64 of a byte for each

  std::size_t count = 0;

  [[nodiscard]] constexpr std::size_t blocks() const { return (count + kBlock - 1) / kBlock; }
  [[nodiscard]] constexpr std::size_t padding() const { return (4 - count % 4) % 4; }
  [[nodiscard]] constexpr std::size_t bytes() const { return blocks() * sizeof(float) + count + padding(); }
};

// Writes the numbers in 8 bits: the scale is a block's largest magnitude by 127, and numbers are rounded to
// the nearest multiple, ties to even. Leaves in `numbers` what the rounding takes away: all of a block whose
// scale would be below 2^-126.
//
// A block that has a number that is not finite, or whose largest would not be as a multiple, arrives as NaN.
// Nothing of it stays: a step that overflows is skipped, and what stays counts in the next one. `to` is
// aligned to 4 bytes.
void quantise(std::byte* to, float* numbers, std::size_t count);

// Sets `numbers` to those that quantise() has written.
void dequantise(float* numbers, const std::byte* from, std::size_t count);

// Moves the numbers as quantise() and dequantise() do, but without rounding: nothing stays.
void move_exactly(float* to, float* numbers, std::size_t count);

}  // namespace roundelay::kernels
