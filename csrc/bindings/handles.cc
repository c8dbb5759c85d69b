// The Python functions that wait for operations.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "adapter/operands.h"
#include "adapter/process.h"
#include "adapter/waiting.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

// Returns true when the results are there, on a GPU too, as Horovod's poll() does.
bool poll(complete::Handle handle) {
  return value_of(global_context()->poll(handle)) && adapter::operands().done(handle);
}

}  // namespace

void bind_handles(py::module_& module) {
  module.def("poll", poll, py::arg("handle"));
  module.def(
      "synchronize", [](complete::Handle handle) { return value_of(adapter::synchronize(handle)); },
      py::arg("handle"));
  module.def("end_linger", [] { global_context()->end_linger(); });
}

}  // namespace roundelay::bindings
