// The names of the algorithms, made from algorithms.def. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "base/dtype.h"

namespace roundelay {

struct AlgorithmName {
  Operation operation{};
  std::string_view name;
};

// All algorithms, in the order of algorithms.def.
inline constexpr auto kAlgorithmNames = std::to_array<AlgorithmName>({
#define ALLREDUCE(Name, name, ...) {Operation::kAllreduce, name},
#define ALGORITHM(Operation_, name, ...) {Operation::k##Operation_, name},
#include "base/algorithms.def"
#undef ALLREDUCE
#undef ALGORITHM
});

namespace algorithm_choices {

// The text "auto|direct|pairwise ...": each name once. Its storage is static.
struct Text {
  std::array<char, 512> data{};
  std::size_t size = 0;

  constexpr void append(std::string_view text) {
    for (const char letter : text) data[size++] = letter;
  }
};
inline constexpr Text kText = [] {
  Text text;
  text.append("auto");
  for (std::size_t i = 0; i < kAlgorithmNames.size(); ++i) {
    bool is_new = true;
    for (std::size_t before = 0; before < i; ++before)
      is_new = is_new && kAlgorithmNames[before].name != kAlgorithmNames[i].name;
    if (!is_new) continue;
    text.append("|");
    text.append(kAlgorithmNames[i].name);
  }
  return text;
}();

}  // namespace algorithm_choices

// The words of ROUNDELAY_ALGORITHM, as KnobOf<std::string> takes them.
inline constexpr std::string_view kAlgorithmChoices(algorithm_choices::kText.data.data(),
                                                    algorithm_choices::kText.size);

}  // namespace roundelay
