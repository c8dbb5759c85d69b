// Loads the module that drives the device (_cuda.so).
#pragma once

#include <string>

#include "base/status.h"
#include "gpu/module.h"

namespace roundelay::gpu {

// Loads the module at `path` and returns its parts, which live as long as the process. Errors: kUnavailable,
// with one line of text (no such library, no module of Roundelay, another version).
[[nodiscard]] Result<GpuModule*> load_gpu_module(const std::string& path);

// Checks that the module's kernels run on the GPUs that this process sees. Warns of those on which they do
// not; errors: kUnavailable (they run on none).
[[nodiscard]] Status check_devices(const GpuModule& module);

}  // namespace roundelay::gpu
