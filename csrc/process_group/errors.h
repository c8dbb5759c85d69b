// The exceptions of a process group: torch.distributed's classes, with Roundelay's texts.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "base/status.h"

namespace roundelay::process_group {

// Throws ValueError for a call that makes no sense by itself.
[[noreturn]] void refuse(const std::string& why);
// An operation has failed. Python sees a class of its own, which is a DistBackendError, too.
class GroupError : public c10::DistBackendError {
 public:
  using c10::DistBackendError::DistBackendError;
};
// Ranks have called different things; likewise.
class MismatchError : public GroupError {
 public:
  using GroupError::GroupError;
};
// Returns the exception of an operation that failed.
[[nodiscard]] std::exception_ptr exception_of(const Status& status);
// Throws it, unless the status is ok.
void check(const Status& status);

}  // namespace roundelay::process_group
