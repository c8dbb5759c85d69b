// Submits operations on tensors. Call these functions with the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adapter/operand.h"
#include "base/status.h"
#include "complete/handles.h"
#include "runtime/context.h"
#include "wire/messages.h"

namespace roundelay::adapter {

using runtime::Route;

// The arguments of a reduction. `op` is the value of a ReduceOp.
struct ReductionArguments {
  int op;
  double prescale_factor;
  double postscale_factor;
};

// Returns a request without tensors. An empty name: the core makes one up.
wire::Request request_of(Operation operation, std::string name);
// Returns an allreduce or reducescatter without tensors. Errors: kInvalidArgument (`op` is unknown), which
// the peers get too.
Result<wire::Request> request_of(Operation operation, std::string name, const ReductionArguments& reduction,
                                 ProcessSetId process_set);
// Submits the operation on the operand's tensors, and keeps the operand until the handle is synchronized.
// `splits`: as in submit::Arguments. `technique`: null, or that of the bucket. Errors: that of `made`, which
// the peers get too; those of current_context() and Context::submit().
Result<complete::Handle> submit(Result<OperandPtr> made, wire::Request request, Route route,
                                std::vector<std::int64_t> splits = {},
                                std::shared_ptr<const compress::BucketTechnique> technique = {});
// Submits an agreement. `values`: this rank's, all of request.fields one after the other (base/agreement.h).
// Errors: those of current_context() and Context::submit().
Result<complete::Handle> submit_agreement(wire::Request request, std::string values, Route route);
// Fails the peers' calls of this name with the error, and returns it.
Status refuse(ProcessSetId process_set, wire::Request request, const Status& error);

}  // namespace roundelay::adapter
