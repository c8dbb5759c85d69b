// Waiting for the core on a thread of Python's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/status.h"
#include "runtime/context.h"
#include "submit/handles.h"

namespace roundelay::bindings {

// From here to its end the caller waits for communication.
class Waiting {
 public:
  explicit Waiting(runtime::Context& context) : context_(context) { context_.begin_wait(); }
  ~Waiting() { context_.end_wait(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  runtime::Context& context_;
};

// Sleeps, without the GIL, until the handle is done. Python's signal handlers run in between; if one raises,
// that is thrown and the handle stays valid.
Status wait(runtime::Context& context, submit::Handle handle);

// Waits, then forgets the handle and raises its error, or returns the outputs that the core allocated. An
// unknown handle is a ValueError.
std::vector<at::Tensor> synchronize(submit::Handle handle);

}  // namespace roundelay::bindings
