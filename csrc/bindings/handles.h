// Waits for the core on a thread of the Python program.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/status.h"
#include "runtime/context.h"
#include "submit/handles.h"

namespace roundelay::bindings {

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
// Call it with the GIL.
Status wait(runtime::Context& context, submit::Handle handle);

// Waits as wait(), takes the handle's operand, and returns the outputs that the core has allocated. Raises
// the operation's error; ValueError if the handle is unknown. Call it with the GIL.
std::vector<at::Tensor> synchronize(submit::Handle handle);

}  // namespace roundelay::bindings
