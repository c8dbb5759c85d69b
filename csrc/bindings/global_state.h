// init() and shutdown() of this process, and its configuration between them.
#pragma once

#include <memory>

#include "base/config.h"
#include "runtime/context.h"

namespace roundelay::bindings {

// Returns the context. It lives as long as the caller keeps it, also while another thread shuts it down.
// Raises ValueError before init and after shutdown, RuntimeError in a forked child. Any thread may call it.
std::shared_ptr<runtime::Context> global_context();
// Returns the configuration that init() has read. Raises as global_context().
std::shared_ptr<const LoadedConfig> global_config();

// Sets runtime::Start::gpu of later inits. It waits while init or shutdown runs. Call it without the GIL: a
// thread for which shutdown waits may need the GIL.
void set_gpu_parts(const gpu::GpuParts& parts);
gpu::GpuParts gpu_parts();

}  // namespace roundelay::bindings
