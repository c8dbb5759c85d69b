// Counts what this thread takes from operator new, which allocations.cc replaces for the whole program.
#pragma once

#include <cstddef>

namespace roundelay {

// Returns how often this thread has allocated.
std::size_t allocations();

}  // namespace roundelay
