// Compares two ranks' requests for one operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/messages.h"

namespace roundelay::negotiate {

using Shape = std::vector<std::int64_t>;

// Returns a text that names the tensor, the ranks, the lower one first, and the difference. Empty if the
// requests agree. `a` and `b` have the same name and come from the world ranks `rank_a` and `rank_b`.
std::string mismatch(const wire::Request& a, int rank_a, const wire::Request& b, int rank_b);

// Returns the list as messages show it: "[2, 3]".
template <typename T>
std::string list_text(const std::vector<T>& values) {
  std::string text = "[";
  for (const T value : values) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(value);
  }
  return text + "]";
}

}  // namespace roundelay::negotiate
