// The table of hooks: which function of this library comes before which of the driver's.
#pragma once

#include <string_view>

#include "preload/driver.h"

namespace roundelay::preload {

// Returns the hook of a name that the driver exports; kCount: it is not hooked.
Hook hook_named(std::string_view name);
// Returns the driver's own function. Null: the process has no driver, or it lacks the function. Thread-safe.
void* real_address(Hook hook);
// Returns the driver's own function; it is there, as the program could not have come here without it.
template <class Function>
Function* real(Hook hook) {
  return reinterpret_cast<Function*>(real_address(hook));
}
// Remembers the driver's own function, which somebody has looked up.
void found(Hook hook, void* function);
// Returns the hook for a program that asks cuGetProcAddress() for `plain_name`, which is without "_v2";
// kCount: the function is not hooked. `version` is the program's version of CUDA (12040 is 12.4).
// `per_thread`: its default stream is each thread's own.
Hook hook_wanted(std::string_view plain_name, int version, bool per_thread);
// Returns this library's function of a hook.
void* function_of(Hook hook);
// Calls the C library's dlsym(), which this library hides.
void* real_dlsym(void* handle, const char* name);

}  // namespace roundelay::preload
