// Asks CUDA's driver where memory lies, and is told of memory that is allocated or freed.
#pragma once

#include <memory>

#include "base/memory_place.h"

namespace roundelay::platform::cuda {

// Asks the driver, in one call, and returns the allocation that has this address. The calling thread has a
// current device. Errors: those of PointerDriver::ask().
[[nodiscard]] Result<Allocation> ask_driver(const void* address);

// Tells the listener of all memory that is allocated or freed. False: changes go unreported, because
// libroundelay_pointer_cache.so is not loaded, or has switched itself off.
[[nodiscard]] bool hear_of_memory(std::shared_ptr<MemoryListener> listener);

}  // namespace roundelay::platform::cuda
