// A word in memory that processes share. A name of its own, so that tests/cpp/explore can put a word in its
// place whose every access is a step that others may come before.
#pragma once

#include <atomic>

namespace roundelay {

template <typename T>
using SharedWord = std::atomic<T>;

}  // namespace roundelay
