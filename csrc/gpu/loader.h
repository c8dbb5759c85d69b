// Loads the module that drives the device (_cuda.so).
#pragma once

#include <string>

#include "base/status.h"
#include "gpu/module.h"

namespace roundelay::gpu {

// Loads the module at `path` and returns its parts, which live as long as the process. Errors: kUnavailable,
// with one line of text (no such library, no module of Roundelay, another version).
[[nodiscard]] Result<GpuModule*> load_gpu_module(const std::string& path);

}  // namespace roundelay::gpu
