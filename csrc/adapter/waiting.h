// Waits for operations on a thread of the Python program. Call these functions with the GIL.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/agreement.h"
#include "base/status.h"
#include "complete/handles.h"
#include "runtime/context.h"

namespace roundelay::adapter {

// Marks a scope in which the caller waits for communication (Context::begin_wait).
class Waiting {
 public:
  explicit Waiting(runtime::Context& context) : context_(context) { context_.begin_wait(); }
  ~Waiting() { context_.end_wait(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  runtime::Context& context_;
};

// Blocks without the GIL until the handle is done, forgets the handle, and returns the operation's status.
// Python's signal handlers run in between; if one raises, its exception is thrown and the handle stays valid.
Status wait(runtime::Context& context, complete::Handle handle);

// Waits as wait(), and finishes the handle's operand: results are in the caller's tensors. Returns the
// outputs that the core has allocated. Errors: kInvalidArgument (unknown handle), the operation's: kMismatch,
// kAborted, kIncomplete.
Result<std::vector<at::Tensor>> synchronize(complete::Handle handle);
// Does the same for an agreement, and returns its result.
Result<Agreed> synchronize_agreement(complete::Handle handle);

}  // namespace roundelay::adapter
