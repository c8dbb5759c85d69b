// Status -> Python exception.
#pragma once

#include <stdexcept>
#include <utility>

#include "base/status.h"

namespace roundelay::bindings {

// Becomes roundelay._core.HorovodInternalError (a RuntimeError).
class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Becomes roundelay._core.MismatchError (a HorovodInternalError).
class MismatchError : public InternalError {
 public:
  using InternalError::InternalError;
};

// Raises the exception of the error's code: ValueError where the caller can fix the call, MismatchError where
// ranks disagree, InternalError where a rank is missing and after a fault, else RuntimeError.
[[noreturn]] void raise(const Status& error);
// Raises MismatchError where ranks disagree, else InternalError: for an operation that was submitted and
// failed.
[[noreturn]] void raise_failed(const Status& error);
inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}
template <typename T>
T value_of(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace roundelay::bindings
