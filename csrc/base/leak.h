// What a medium may still use after a fault is given up for good.
#pragma once

#include <deque>
#include <type_traits>
#include <utility>

#include "base/annotations.h"

namespace roundelay {

// Still referenced, so that a leak checker knows it for intended. Never destroyed: exit() must not free it.
// From any thread.
template <typename T>
void leak(T&& owned) {
  static Mutex mutex;
  static auto& kept = *new std::deque<std::remove_cvref_t<T>>;
  const MutexLock lock(mutex);
  kept.push_back(std::forward<T>(owned));
}

}  // namespace roundelay
