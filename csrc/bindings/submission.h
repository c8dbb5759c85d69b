// What all functions that submit an operation do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapter/operand.h"
#include "base/status.h"
#include "submit/handles.h"
#include "wire/messages.h"

namespace roundelay::bindings {

using Name = std::optional<std::string>;

// Where a call goes, and whether its caller waits at once.
struct Route {
  ProcessSetId process_set;
  bool blocking;
};

wire::Request request_of(Operation operation, const Name& name);
// Errors: ValueError, and the peers hear of it.
void set_reduction(wire::Request& request, int op, double prescale_factor, double postscale_factor,
                   ProcessSetId process_set);
// Errors: those of `made` and of Context::submit, raised; the peers hear of them.
submit::Handle submit(Result<adapter::OperandPtr> made, wire::Request request, Route route,
                      std::vector<std::int64_t> splits = {});

}  // namespace roundelay::bindings
