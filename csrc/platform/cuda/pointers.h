// What CUDA's driver knows of an address.
#pragma once

#include <memory>

#include "base/memory_place.h"

namespace roundelay::platform::cuda {

// Asks the driver, in one call. The calling thread has a current device. Errors: as PointerDriver::ask().
[[nodiscard]] Result<Allocation> ask_driver(const void* address);

// Tells the listener of all memory that begins or ends. False: nobody hears of it, as
// libroundelay_pointer_cache.so is not loaded, or has switched itself off.
[[nodiscard]] bool hear_of_memory(std::shared_ptr<MemoryListener> listener);

}  // namespace roundelay::platform::cuda
