// Recursive doubling, apart from how bytes travel: who meets whom, and how two members' vectors become one.
#pragma once

#include <bit>
#include <cstddef>

#include "collective/call.h"

namespace roundelay::collective {

// The members that take part in the rounds, renumbered 0..2^n-1 in the order of their indices.
struct Doubling {
  explicit Doubling(int size) : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))) {
    folded = size - members;
  }
  // The first 2 * folded members are pairs: the odd one gives its part to the even one.
  [[nodiscard]] bool in_pair(int index) const { return index < 2 * folded; }
  [[nodiscard]] bool gives_away(int index) const { return in_pair(index) && index % 2 == 1; }
  // Of one that does not give away: whom it meets at `distance` 1, 2, 4 ... below `members`.
  [[nodiscard]] int partner(int index, int distance) const {
    const int other = (in_pair(index) ? index / 2 : index - folded) ^ distance;
    return other < folded ? 2 * other : other + folded;
  }

  int members;
  int folded = 0;
};

// What travels: the buffer's own type, for Adasum at least fp32.
DType working_type(const Reduction& how);

// a = a op b, where a is the lower member's.
void merge(const Reduction& how, std::byte* a, const std::byte* b, std::size_t count);

}  // namespace roundelay::collective
