#include "bindings/errors.h"

#include <pybind11/pybind11.h>

#include "bindings/topics.h"

namespace roundelay::bindings {

void raise(const Status& error) {
  switch (error.code()) {
    case StatusCode::kInvalidArgument:
      throw py::value_error(error.message());
    case StatusCode::kMismatch:
    case StatusCode::kIncomplete:
    case StatusCode::kAborted:
      raise_failed(error);
    default:
      throw std::runtime_error(error.message());
  }
}

void raise_failed(const Status& error) {
  if (error.code() == StatusCode::kMismatch) throw MismatchError(error.message());
  throw InternalError(error.message());
}

void bind_errors(py::module_& module) {
  auto& internal = py::register_exception<InternalError>(module, "HorovodInternalError", PyExc_RuntimeError);
  internal.doc() =
      "A collective operation failed: a peer differs, left or does not answer. The name is Horovod's.";
  // After its base: the last one that is registered is the first one that is tried.
  py::register_exception<MismatchError>(module, "MismatchError", internal.ptr()).doc() =
      "The ranks called an operation with different arguments. The job may go on.";
}

}  // namespace roundelay::bindings
