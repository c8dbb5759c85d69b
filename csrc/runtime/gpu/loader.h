// Loads the module that knows the device (_cuda.so).
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/gpu/module.h"

namespace roundelay::runtime {

// Errors: kUnavailable, in one line: it cannot be loaded, is no module of ours, or is of another version.
// Never unloaded.
[[nodiscard]] Result<GpuModule*> load_gpu_module(const std::string& path);

}  // namespace roundelay::runtime
