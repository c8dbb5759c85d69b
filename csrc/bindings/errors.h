// Turns a Status into a Python exception.
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

// Throws the exception of the error's code: ValueError if the caller can correct the call, MismatchError if
// ranks disagree, InternalError if a rank is missing and after a fault, else RuntimeError.
[[noreturn]] void raise(const Status& error);
// Throws MismatchError if ranks disagree, else InternalError: for an operation that was submitted and failed.
[[noreturn]] void raise_failed(const Status& error);
// Throws as raise(), unless the status is ok.
inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}
// Returns the result's value. Throws as raise() if there is none.
template <typename T>
T value_of(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace roundelay::bindings
