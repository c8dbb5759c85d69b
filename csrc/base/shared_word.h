// An atomic word in memory that processes share. tests/cpp/explore replaces this header: its words let the
// test choose which thread makes the next access.
#pragma once

#include <atomic>

namespace roundelay {

template <typename T>
using SharedWord = std::atomic<T>;

}  // namespace roundelay
