// Memory that a medium may still write to after a fault is given up for good.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/annotations.h"

namespace roundelay::runtime {

// Still referenced, so that a leak checker knows it for intended. Never destroyed: exit() must not free it.
inline void leak(std::vector<std::int64_t> memory) {
  static Mutex mutex;
  static auto& kept = *new std::deque<std::vector<std::int64_t>>;
  const MutexLock lock(mutex);
  if (!memory.empty()) kept.push_back(std::move(memory));
}

}  // namespace roundelay::runtime
