// The Python function that agrees on values with the other ranks.
#include "base/agreement.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adapter/submission.h"
#include "adapter/waiting.h"
#include "bindings/errors.h"
#include "bindings/fields.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

complete::Handle submit_agreement(const std::string& name, const FieldValues& values, int root,
                                  adapter::Route route) {
  wire::Request request = adapter::request_of(Operation::kAgreement, name);
  request.root = root;
  auto [fields, packed] = packed_fields(values);
  request.fields = std::move(fields);
  return value_of(adapter::submit_agreement(std::move(request), std::move(packed), route));
}

}  // namespace

void bind_agreements(py::module_& module) {
  py::enum_<Merge>(module, "Merge")
      .value("EQUAL", Merge::kEqual)
      .value("AND", Merge::kAnd)
      .value("OR", Merge::kOr)
      .value("MAX", Merge::kMax)
      .value("ROOT", Merge::kRoot)
      .value("SUM", Merge::kSum);
  py::class_<Agreed>(module, "Agreed")
      .def_property_readonly("values", [](const Agreed& self) { return py::bytes(self.values); })
      .def_property_readonly("differences",
                             [](const Agreed& self) { return python_differences(self.differences); })
      .def_property_readonly("absent", [](const Agreed& self) { return self.absent; });
  module.def(
      "agree",
      [](const std::string& name, const FieldValues& values, int root, ProcessSetId process_set) {
        return value_of(
            adapter::synchronize_agreement(submit_agreement(name, values, root, {process_set, true})));
      },
      py::arg("name"), py::arg("fields"), py::arg("root"), py::arg("process_set"));
  module.def(
      "agree_async",
      [](const std::string& name, const FieldValues& values, int root, ProcessSetId process_set) {
        return submit_agreement(name, values, root, {process_set, false});
      },
      py::arg("name"), py::arg("fields"), py::arg("root"), py::arg("process_set"));
  module.def(
      "agreed", [](complete::Handle handle) { return value_of(adapter::synchronize_agreement(handle)); },
      py::arg("handle"));
}

}  // namespace roundelay::bindings
