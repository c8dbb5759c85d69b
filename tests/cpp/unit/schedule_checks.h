// What explorations of the schedule lock have to find.
#pragma once

#include "tests/cpp/catch.h"
#include "tests/cpp/unit/schedule_explorer.h"

namespace roundelay::submit {

// All that members submit runs under the lock, with right results.
inline void check_runs_under_the_lock(const Case& given) {
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.wrong_results() == 0);
  CHECK(explorer.ends() == 1);
  CHECK(explorer.ends_unlocked() == 0);
}

// The case's protocol is wrong.
inline void check_is_found(const Case& given) {
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.wrong_results() > 0);
}

}  // namespace roundelay::submit
