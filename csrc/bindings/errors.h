// GpuSequencer a Status into a Python exception.
#pragma once

#include <stdexcept>
#include <utility>

#include "base/status.h"

namespace roundelay::bindings {

// Python gets it as roundelay._core.HorovodInternalError, a RuntimeError.
class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws ValueError if the caller can correct the call, InternalError if the ranks disagree or after a fault,
// else RuntimeError.
[[noreturn]] void raise(const Status& error);
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
