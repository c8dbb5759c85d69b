#include "compress/top_k/message.h"

#include <algorithm>
#include <cstring>

namespace roundelay::compress::top_k {

void IndexCode::write(std::byte* to, std::span<const std::int64_t> indices) const {
  if (!short_) {
    auto* const wide = reinterpret_cast<std::uint32_t*>(to);
    for (std::size_t i = 0; i < count_; ++i) wide[i] = static_cast<std::uint32_t>(indices[i]);
    return;
  }
  auto* const counts = reinterpret_cast<std::uint32_t*>(to);
  auto* const narrow = reinterpret_cast<std::uint16_t*>(counts + blocks());
  std::fill_n(counts, blocks(), 0U);
  for (std::size_t i = 0; i < count_; ++i) {
    const auto index = static_cast<std::uint64_t>(indices[i]);
    ++counts[index / kBlock];
    narrow[i] = static_cast<std::uint16_t>(index % kBlock);
  }
}

bool IndexCode::read(const std::byte* from, std::span<std::uint32_t> indices) const {
  if (short_) return read_short(from, indices);
  std::memcpy(indices.data(), from, count_ * sizeof(std::uint32_t));
  return std::all_of(indices.begin(), indices.end(), [&](std::uint32_t one) { return one < elements_; });
}

bool IndexCode::read_short(const std::byte* from, std::span<std::uint32_t> indices) const {
  const auto* const counts = reinterpret_cast<const std::uint32_t*>(from);
  const auto* const narrow = reinterpret_cast<const std::uint16_t*>(counts + blocks());
  std::size_t at = 0;
  for (std::size_t block = 0; block < blocks(); ++block) {
    const std::size_t first = block * kBlock;
    if (counts[block] > count_ - at) return false;
    for (std::size_t end = at + counts[block]; at < end; ++at) {
      if (first + narrow[at] >= elements_) return false;
      indices[at] = static_cast<std::uint32_t>(first + narrow[at]);
    }
  }
  return at == count_;
}

}  // namespace roundelay::compress::top_k
