// Submits operations; the Python functions of all operations use it. Call these functions with the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter/operand.h"
#include "base/status.h"
#include "submit/handles.h"
#include "wire/messages.h"

namespace roundelay::bindings {

using Name = std::optional<std::string>;  // nothing: the core makes up a name

// The arguments that all operations have.
struct Route {
  ProcessSetId process_set;
  bool blocking;  // the caller waits for the handle at once (Submission::blocking)
};

// Returns a request without tensors.
wire::Request request_of(Operation operation, const Name& name);
// Sets how the request reduces; `op` is the value of a ReduceOp. Raises ValueError if it is unknown; the
// peers' calls in this process set then fail too.
void set_reduction(wire::Request& request, int op, double prescale_factor, double postscale_factor,
                   ProcessSetId process_set);
// Submits the operation on the operand's tensors, and keeps the operand until the handle is synchronized.
// `splits`: as in submit::Arguments. `technique`: null, or that of the bucket. Raises the error of `made`,
// which the peers get too, or that of Context::submit().
submit::Handle submit(Result<adapter::OperandPtr> made, wire::Request request, Route route,
                      std::vector<std::int64_t> splits = {},
                      std::shared_ptr<const compress::BucketTechnique> technique = {});

}  // namespace roundelay::bindings
