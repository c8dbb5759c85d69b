// The exceptions of a process group: torch.distributed's classes, with Roundelay's texts.
#pragma once

#include <exception>
#include <string>

#include "base/status.h"

namespace roundelay::process_group {

// Throws ValueError for a call that makes no sense by itself.
[[noreturn]] void refuse(const std::string& why);
// Returns the exception of an operation that failed: torch.distributed.DistBackendError.
[[nodiscard]] std::exception_ptr exception_of(const Status& status);
// Throws it, unless the status is ok.
void check(const Status& status);

}  // namespace roundelay::process_group
