// The one Context of this process, from init() to shutdown().
#pragma once

#include <memory>

#include "adapter/accelerator.h"
#include "adapter/operands.h"
#include "base/config.h"
#include "runtime/context.h"

namespace roundelay::bindings {

// Alive as long as the caller keeps it, also while another thread shuts it down.
// Errors: ValueError before init and after shutdown, RuntimeError in a forked child.
std::shared_ptr<runtime::Context> global_context();
// What init() read. Errors: as global_context().
std::shared_ptr<const LoadedConfig> global_config();

// Tensors in flight.
adapter::Operands& global_operands();
// Of those that are done, what the device is done with by now goes. With the GIL.
void reclaim_operands();

// Which GPU tensors may be on; set up by load_gpu(), for this process's inits to come.
adapter::Accelerator& global_accelerator();
void set_gpu_parts(const runtime::GpuParts& parts);

}  // namespace roundelay::bindings
