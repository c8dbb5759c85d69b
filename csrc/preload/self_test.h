// Proves that changes are reported, before any answer comes from the cache.
#pragma once

#include <string>

namespace roundelay::preload {

// Allocates and frees a little memory in each way that programs of this process may: with the driver's
// functions, and with the CUDA runtime's, if it is loaded. Returns the first function whose change was not
// reported; "": all were. The calling thread has a current context, as it asks about memory.
std::string what_goes_unheard();

}  // namespace roundelay::preload
