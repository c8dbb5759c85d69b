// Steps of several members in one thread, in random orders.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay::contract {

// Returns another value for every call, member and place, so that a value that is read too late shows.
inline std::int32_t value(std::size_t call, std::size_t member, std::size_t i) {
  return static_cast<std::int32_t>(((call * 61 + member + 1) * 40503 + i) * 2654435761U >> 9U & 0xFFFFFU);
}

// Calls step() of one of the scripts after the other, in random order, often of one many times, until all
// have said false. Calls `before(turn)` before each turn.
template <class Script, class Before>
void step_in_any_order(std::vector<Script*> open, std::mt19937& random, Before before) {
  for (std::size_t turn = 0; !open.empty(); ++turn) {
    before(turn);
    const auto one = open.begin() + static_cast<std::ptrdiff_t>(random() % open.size());
    for (unsigned steps = random() % 3 == 0 ? 50 : 1; steps > 0; --steps) {
      if ((*one)->step()) continue;
      open.erase(one);
      break;
    }
    REQUIRE(turn < 1'000'000);
  }
}

}  // namespace roundelay::contract
