// Settings that state the size of the cluster: ROUNDELAY_TOPOLOGY's counts, ROUNDELAY_FACTORS, a tuning file.
// They are left out when the ranks of an elastic job have changed, and they fit no more: nobody can correct
// them then.
#pragma once

#include <concepts>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace roundelay::runtime {

inline void log_left_out(const Status& why) {
  log(LogLevel::kWarning, "left out, as the ranks have changed: " + why.message());
}

// Returns what was made with such a setting, or what `without` makes. `says`: this rank logs it.
template <typename T, std::invocable Without>
Result<T> refitted(Result<T> with, bool ranks_changed, bool says, Without without) {
  if (!ranks_changed || with.status().code() != StatusCode::kInvalidArgument) return with;
  if (says) log_left_out(with.status());
  return without();
}

}  // namespace roundelay::runtime
