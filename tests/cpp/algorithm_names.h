// The algorithms of an operation, for tests that try all of them.
#pragma once

#include <string_view>
#include <vector>

#include "base/algorithms.h"

namespace roundelay {

// Returns the names of an operation's algorithms, each once.
inline std::vector<std::string_view> algorithm_names(Operation operation) {
  std::vector<std::string_view> names;
  for (const AlgorithmName& one : kAlgorithmNames) {
    if (one.operation == operation) names.push_back(one.name);
  }
  return names;
}

}  // namespace roundelay
