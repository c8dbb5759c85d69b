// MPI for the tests of this folder. The first test starts it; the process finalises it at exit. All ranks run
// the same tests in the same order.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "base/clock.h"
#include "platform/mpi/session.h"

namespace roundelay::contract {

// A rank waits this long for ranks that are still in an earlier part. A busy machine needs minutes for parts
// that take a second on a quiet one.
inline Deadline patience() { return Deadline::after(std::chrono::minutes(5)); }

inline std::optional<std::string> environment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

inline mpi::Session& session() {
  static mpi::Session* const opened = [] {
    auto result = mpi::Session::open(environment, {}, patience());
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", result.status().message().c_str());
      std::exit(EXIT_FAILURE);
    }
    return *result;
  }();
  return *opened;
}

inline Group first_ranks(int size) {
  Group group;
  for (int rank = 0; rank < size; ++rank) group.ranks.push_back(rank);
  group.index = session().rank();
  return group;
}

}  // namespace roundelay::contract
