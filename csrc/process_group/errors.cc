#include "process_group/errors.h"

namespace roundelay::process_group {

void refuse(const std::string& why) { C10_THROW_ERROR(ValueError, why); }

std::exception_ptr exception_of(const Status& status) {
  if (status.ok()) return nullptr;
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  if (status.code() == StatusCode::kMismatch) {
    return std::make_exception_ptr(MismatchError(here, status.message()));
  }
  return std::make_exception_ptr(GroupError(here, status.message()));
}

void check(const Status& status) {
  if (!status.ok()) std::rethrow_exception(exception_of(status));
}

}  // namespace roundelay::process_group
