// Limits of time. A missed one is an error of its own, because a busy machine stretches any time: .ci/run
// tries such a test once more, alone, and knows it by its first words (tools/outcomes.py).
#pragma once

#include <stdexcept>
#include <string>

#include "base/clock.h"

namespace roundelay::testing {

struct TooLateError : std::runtime_error {
  explicit TooLateError(const std::string& detail) : std::runtime_error("took too long: " + detail) {}
};

// Checks that something took no longer than promised.
inline void expect_within(Duration limit, Duration took) {
  if (took >= limit) throw TooLateError(seconds_text(took) + " of " + seconds_text(limit));
}

// Checks that a wait need not be given up.
inline void expect_before(const Deadline& limit) {
  if (limit.passed()) throw TooLateError("what the test waits for does not come");
}

}  // namespace roundelay::testing
