// MasterPair and MasterPairs: the fp32 masters of an optimizer's half parameters.
#include "gradients/master_pairs.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>

#include "bindings/errors.h"
#include "bindings/topics.h"

namespace roundelay::bindings {

using gradients::MasterPair;
using gradients::MasterPairs;

void bind_master_pairs(py::module_& module) {
  py::class_<MasterPair, std::shared_ptr<MasterPair>>(module, "MasterPair")
      .def(py::init<const at::Tensor&, const at::Tensor&, std::string>(), py::arg("parameter"),
           py::arg("master"), py::arg("label"))
      .def_property_readonly("parameter", &MasterPair::parameter)
      .def_property_readonly("master", &MasterPair::master)
      .def_property_readonly("label", &MasterPair::label)
      .def("take_where_equal", &MasterPair::take_where_equal, py::arg("values"));
  py::class_<MasterPairs>(module, "MasterPairs")
      .def(py::init())
      .def("set", &MasterPairs::set, py::arg("pairs"))
      .def(
          "take_gradients",
          [](const MasterPairs& self, bool arrived) { check(self.take_gradients(arrived)); },
          py::arg("arrived") = true)
      .def("note_unscaled", &MasterPairs::note_unscaled)
      .def("begin_gradients", &MasterPairs::begin_gradients)
      .def("refresh", &MasterPairs::refresh)
      .def("write_back", &MasterPairs::write_back)
      .def("end_step", &MasterPairs::end_step);
}

}  // namespace roundelay::bindings
