// The exceptions of a process group: torch.distributed's classes, with Roundelay's texts.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "base/status.h"

namespace roundelay::process_group {

// Throws ValueError for a call that makes no sense by itself.
[[noreturn]] void refuse(const std::string& why);
// Ranks have called different things. Python sees a class of its own, which is a DistBackendError, too.
class MismatchError : public c10::DistBackendError {
 public:
  using c10::DistBackendError::DistBackendError;
};
// Returns the exception of an operation that failed: c10::DistBackendError, or MismatchError.
[[nodiscard]] std::exception_ptr exception_of(const Status& status);
// Throws it, unless the status is ok.
void check(const Status& status);

}  // namespace roundelay::process_group
