// Keeps objects alive forever that a transport or device may still use after a fault.
#pragma once

#include <deque>
#include <type_traits>
#include <utility>

#include "base/annotations.h"

namespace roundelay {

// Moves `owned` to a list that is never destroyed, not even at exit(). The list keeps it reachable, so leak
// checkers do not report it. Thread-safe.
template <typename T>
void leak(T&& owned) {
  static Mutex mutex;
  static auto& kept = *new std::deque<std::remove_cvref_t<T>>;
  const MutexLock lock(mutex);
  kept.push_back(std::forward<T>(owned));
}

}  // namespace roundelay
