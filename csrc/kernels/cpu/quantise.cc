#include "kernels/quantise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace roundelay::kernels {
namespace {

constexpr float kMost = 127;
// Added to a small number and taken away again, it rounds to an integer, ties to even, in two vector
// instructions of any processor.
constexpr float kRounder = 0x1.8p23F;

// Returns the largest magnitude; NaN or infinity if a number is not finite. Magnitudes are ordered as their
// bits are, NaN above all.
float largest(const float* numbers, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i)
    most = std::max(most, std::bit_cast<std::uint32_t>(numbers[i]) & 0x7fffffffU);
  return std::bit_cast<float>(most);
}

// Returns the block's scale.
float quantise_block(std::int8_t* to, float* numbers, std::size_t count) {
  const float most = largest(numbers, count);
  const float scale = most / kMost;
  const bool tiny = scale < std::numeric_limits<float>::min();  // multiples of it are not exact
  if (!std::isfinite(most) || tiny) {
    std::memset(to, 0, count);
    if (tiny) return 0;
    std::fill_n(numbers, count, 0.0F);
    return std::numeric_limits<float>::quiet_NaN();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float multiple = (numbers[i] / scale + kRounder) - kRounder;
    to[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(multiple));
    numbers[i] -= multiple * scale;
  }
  return scale;
}

}  // namespace

void quantise(std::byte* to, float* numbers, const float* marks, std::size_t count) {
  const EightBits form{count};
  auto* const bytes = reinterpret_cast<std::int8_t*>(to + form.blocks() * sizeof(float));
  for (std::size_t block = 0; block < form.blocks(); ++block) {
    const std::size_t first = block * EightBits::kBlock;
    const std::size_t size = std::min(EightBits::kBlock, count - first);
    float scale = std::numeric_limits<float>::quiet_NaN();
    if (marks != nullptr && !std::isfinite(marks[block]))
      std::memset(bytes + first, 0, size);
    else
      scale = quantise_block(bytes + first, numbers + first, size);
    std::memcpy(to + block * sizeof scale, &scale, sizeof scale);
  }
  std::memset(bytes + count, 0, (4 - count % 4) % 4);  // no byte of this process's other memory travels
}

void dequantise(float* numbers, const std::byte* from, std::size_t count) {
  const EightBits form{count};
  const auto* const bytes = reinterpret_cast<const std::int8_t*>(from + form.blocks() * sizeof(float));
  for (std::size_t block = 0; block < form.blocks(); ++block) {
    float scale = 0;
    std::memcpy(&scale, from + block * sizeof scale, sizeof scale);
    const std::size_t end = std::min(count, (block + 1) * EightBits::kBlock);
    for (std::size_t i = block * EightBits::kBlock; i < end; ++i)
      numbers[i] = static_cast<float>(bytes[i]) * scale;
  }
}

}  // namespace roundelay::kernels
