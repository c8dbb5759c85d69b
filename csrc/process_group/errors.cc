#include "process_group/errors.h"

#include <c10/util/Exception.h>

namespace roundelay::process_group {

void refuse(const std::string& why) { C10_THROW_ERROR(ValueError, why); }

std::exception_ptr exception_of(const Status& status) {
  if (status.ok()) return nullptr;
  const std::string kind = status.code() == StatusCode::kMismatch ? "the calls of ranks differ: " : "";
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, kind + status.message()));
}

void check(const Status& status) {
  if (!status.ok()) std::rethrow_exception(exception_of(status));
}

}  // namespace roundelay::process_group
