// Keeps what this process has from init() to shutdown(): its one Context, its configuration and the tensors
// in flight.
#pragma once

#include <memory>

#include "adapter/accelerator.h"
#include "adapter/operands.h"
#include "base/config.h"
#include "runtime/context.h"

namespace roundelay::bindings {

// Returns the context. It lives as long as the caller keeps it, also while another thread shuts it down.
// Raises ValueError before init and after shutdown, RuntimeError in a forked child. Any thread may call it.
std::shared_ptr<runtime::Context> global_context();
// Returns the configuration that init() has read. Raises as global_context().
std::shared_ptr<const LoadedConfig> global_config();

// Returns the tensors of the handles that are not synchronized yet. Any thread; they live as long as the
// process.
adapter::Operands& global_operands();
// Frees the tensors of synchronized handles that the device has finished with. Call it with the GIL.
void reclaim_operands();

// Returns the process's accelerator, which lives as long as the process. The Python function load_gpu() sets
// it up.
adapter::Accelerator& global_accelerator();
// Sets runtime::Start::gpu of later inits. It waits while init or shutdown runs. Call it without the GIL: a
// thread for which shutdown waits may need the GIL.
void set_gpu_parts(const runtime::GpuParts& parts);

}  // namespace roundelay::bindings
