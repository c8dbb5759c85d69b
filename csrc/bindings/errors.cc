#include "bindings/errors.h"

#include <pybind11/pybind11.h>

#include "bindings/topics.h"

namespace roundelay::bindings {

void raise(const Status& error) {
  switch (error.code()) {
    case StatusCode::kInvalidArgument:
      throw py::value_error(error.message());
    case StatusCode::kMismatch:
    case StatusCode::kAborted:
      throw InternalError(error.message());
    default:
      throw std::runtime_error(error.message());
  }
}

void bind_errors(py::module_& module) {
  py::register_exception<InternalError>(module, "HorovodInternalError", PyExc_RuntimeError).doc() =
      "A collective operation failed: a peer differs, left or does not answer. The name is Horovod's.";
}

}  // namespace roundelay::bindings
