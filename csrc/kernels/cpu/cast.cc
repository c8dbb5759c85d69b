// Conversions between any two dtypes, with one rounding each.
#include <utility>

#include "kernels/convert.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/table.h"

namespace roundelay::kernels {
namespace {

template <DType kTo, DType kFrom>
void cast_loop(std::byte* destination, const std::byte* source, std::size_t count) {
  using To = typename Element<kTo>::Stored;
  using From = typename Element<kFrom>::Stored;
  const auto function = [](From value) -> To { return convert<kTo>(Element<kFrom>::widen(value)); };
  map_loop<To, From>(destination, source, count, function);
}

template <std::size_t... kPairs>
constexpr CastTable make_table(std::index_sequence<kPairs...> /*pairs*/) {
  CastTable table{};
  ((table[kPairs / kDTypeCount][kPairs % kDTypeCount] =
        &cast_loop<static_cast<DType>(kPairs / kDTypeCount), static_cast<DType>(kPairs % kDTypeCount)>),
   ...);
  return table;
}

constexpr CastTable kCasts = make_table(std::make_index_sequence<std::size_t{kDTypeCount} * kDTypeCount>());

}  // namespace

const CastTable& portable_casts() { return kCasts; }

}  // namespace roundelay::kernels
