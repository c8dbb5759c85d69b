// KnownTensors: the tensors in an optimizer's groups, which each step compares with those of the last one.
#include "adapter/known_tensors.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using adapter::KnownTensors;

bool follow(KnownTensors& known, const py::list& groups) {
  for (const py::handle group : groups) {
    for (const py::handle parameter : group["params"]) {
      if (THPVariable_Check(parameter.ptr())) known.next(THPVariable_Unpack(parameter.ptr()));
    }
  }
  return known.end();
}

}  // namespace

void bind_known_tensors(py::module_& module) {
  py::class_<KnownTensors>(module, "KnownTensors").def(py::init()).def("follow", &follow, py::arg("groups"));
}

}  // namespace roundelay::bindings
