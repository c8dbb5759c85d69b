// The arithmetic of recursive doubling, for programs on any medium: which members exchange vectors in a
// round, and how two vectors become one.
#pragma once

#include <bit>
#include <cstddef>

#include "collective/call.h"

namespace roundelay::collective {

// The rounds need 2^n members. If a group has more, the first 2 * `folded` members are pairs: the odd one
// gives its vector to the even one before the rounds, and gets the result after them.
struct Doubling {
  explicit Doubling(int size) : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))) {
    folded = size - members;
  }
  [[nodiscard]] bool in_pair(int index) const { return index < 2 * folded; }
  [[nodiscard]] bool gives_away(int index) const { return in_pair(index) && index % 2 == 1; }
  // Members that do not give away are numbered in their order, from 0 to `members` - 1. The number of a
  // member that gives away is that of its pair.
  [[nodiscard]] int number(int index) const { return in_pair(index) ? index / 2 : index - folded; }
  // Returns the member of a number. For `members` it returns the group's size, so that the members of the
  // numbers from a to b, with those that give away, are those from index_of(a) to index_of(b).
  [[nodiscard]] int index_of(int number) const { return number < folded ? 2 * number : number + folded; }
  // Returns the partner of a member that does not give away, in the round of `distance` 1, 2, 4 ... below
  // `members`.
  [[nodiscard]] int partner(int index, int distance) const { return index_of(number(index) ^ distance); }

  int members;  // the number of members in the rounds, 2^n
  int folded = 0;
};

// Returns the type in which vectors travel: their own, but fp32 for Adasum of halves.
DType working_type(const Reduction& how);

// Computes a = a op b over `count` elements of the working type, without the scales of `how`. `a` is the
// vector of the lower member.
void merge(const Reduction& how, std::byte* a, const std::byte* b, std::size_t count);

}  // namespace roundelay::collective
