// The objects with which this process submits operations: the context of the present init(), the tensors in
// flight, and the accelerator.
#pragma once

#include <memory>

#include "adapter/accelerator.h"
#include "adapter/operands.h"
#include "base/status.h"
#include "runtime/context.h"

namespace roundelay::adapter {

// Any thread may call these functions. The references that they return are valid as long as the process
// lives.

// Returns the context. It lives as long as the caller keeps it, also while another thread shuts it down.
// Errors: kInvalidArgument before init and after shutdown, kUnavailable in a forked child.
Result<std::shared_ptr<runtime::Context>> current_context();
// Makes `context` the present one, and returns the one before. Null: there is none.
std::shared_ptr<runtime::Context> exchange_context(std::shared_ptr<runtime::Context> context);
[[nodiscard]] bool has_context();

// Says that this process is a child, without the threads, of one that has called init().
void note_fork();
// Returns kUnavailable in such a child.
[[nodiscard]] Status refuse_in_child();

// The tensors of the handles that are not synchronized yet.
Operands& operands();
// Frees the tensors of synchronized handles that the device has finished with. Call it with the GIL.
void reclaim_operands();

// load_gpu() of the bindings sets it up.
Accelerator& accelerator();

}  // namespace roundelay::adapter
