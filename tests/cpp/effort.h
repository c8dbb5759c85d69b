// How much a test does. `make test`, and CI under the sanitizers, ask for less (QUICK_TESTS=1) than ctest.
#pragma once

#include <cstdlib>

namespace roundelay::testing {

// Returns whether a part is enough: the smaller groups, the first seeds.
inline bool quick() {
  static const bool kQuick = std::getenv("QUICK_TESTS") != nullptr;
  return kQuick;
}

// Returns how many of `all` seeds to try. What the seeds find, a test may expect in the same proportion.
constexpr int kQuickPart = 6;
template <typename Count>
Count seeds(Count all) {
  return quick() ? all / kQuickPart : all;
}

}  // namespace roundelay::testing
