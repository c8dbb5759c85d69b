// The types that a call's mark tells apart, though no kernel knows them: their elements travel as bytes, or
// as the real numbers of which they consist. In a mark their numbers follow those of DType.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace roundelay::collective {

enum class MarkedType : std::uint8_t { kComplex32, kComplex64, kComplex128, kFloat4E2M1FNX2 };
inline constexpr std::array<std::string_view, 4> kMarkedTypeNames = {"complex32", "complex64", "complex128",
                                                                     "float4_e2m1fn_x2"};
inline constexpr int kTypesInMarks = kMovedDTypeCount + static_cast<int>(kMarkedTypeNames.size());

constexpr DType in_mark(MarkedType type) {
  return static_cast<DType>(kMovedDTypeCount + static_cast<int>(type));
}
// Returns the name of a type in a mark, which is below kTypesInMarks.
constexpr std::string_view name_in_mark(DType type) {
  const int number = static_cast<int>(type);
  if (number < kMovedDTypeCount) return name_of(type);
  return kMarkedTypeNames[static_cast<std::size_t>(number - kMovedDTypeCount)];
}

}  // namespace roundelay::collective
