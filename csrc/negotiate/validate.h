// Do two ranks mean the same operation? If not: which tensor, which ranks, what differs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/messages.h"

namespace roundelay::negotiate {

using Shape = std::vector<std::int64_t>;

// Empty if they agree. `a` and `b` are uses of one name by world ranks `rank_a` and `rank_b`.
std::string mismatch(const wire::Request& a, int rank_a, const wire::Request& b, int rank_b);

// For messages: "[2, 3]".
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
