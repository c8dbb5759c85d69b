// Reducer, and what Python decides for it.
#include "gradients/reducer.h"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/errors.h"
#include "bindings/fields.h"
#include "bindings/python_reduction.h"
#include "bindings/topics.h"
#include "bindings/weak_owner.h"

namespace roundelay::bindings {
namespace {

using gradients::HookRules;
using gradients::Reducer;
using gradients::Rule;

// Calls the methods of a Python object (python/roundelay/torch/_internal/optimizer/gradient_sync.py).
class PythonPolicy final : public gradients::Policy {
 public:
  explicit PythonPolicy(const py::object& owner) : owner_(owner) {}

  void agreed(const Agreement& agreement) override {
    owner_.call("agreed", py::bytes(agreement.values), python_differences(agreement.differences),
                agreement.absent, agreement.busy);
  }
  void differs(const Status& error) override {
    owner_.call("differs", error.ok() ? py::object(py::none()) : py::str(error.message()));
  }
  void failed() override { owner_.call("new_step"); }
  std::unique_ptr<gradients::Flight> reduce_sparse(const at::Tensor& tensor,
                                                   const std::string& name) override {
    return std::make_unique<PythonFlight>(owner_.call("reduce_sparse", tensor, name));
  }

 private:
  const WeakOwner owner_;
};

std::shared_ptr<Reducer> make_reducer(std::pair<int, int> order, std::string prefix,
                                      std::shared_ptr<Rule> rule, int root, const py::object& policy) {
  return std::make_shared<Reducer>(order, std::move(prefix), std::move(rule), root,
                                   std::make_unique<PythonPolicy>(policy));
}

void set_policy(Reducer& reducer, const FieldValues& values, bool always) {
  auto [fields, packed] = packed_fields(values);
  reducer.set_policy(std::move(fields), std::move(packed), always);
}

std::vector<std::pair<std::shared_ptr<gradients::Gradient>, std::int64_t>> ready_times_of(
    const Reducer& reducer) {
  std::vector<std::pair<std::shared_ptr<gradients::Gradient>, std::int64_t>> ready_times;
  for (const auto& [gradient, at] : reducer.ready_times())
    ready_times.emplace_back(gradient, at.time_since_epoch().count());
  return ready_times;
}

}  // namespace

void bind_reducer(py::module_& module) {
  py::class_<HookRules>(module, "HookRules")
      .def_readwrite("passes_per_step", &HookRules::passes_per_step)
      .def_readwrite("no_sync_depth", &HookRules::no_sync_depth)
      .def_readwrite("marking", &HookRules::marking);
  py::class_<Reducer, std::shared_ptr<Reducer>>(module, "Reducer")
      .def(py::init(&make_reducer), py::arg("order"), py::arg("prefix"), py::arg("rule"), py::arg("root"),
           py::arg("policy"))
      .def_property_readonly("rules", &Reducer::rules, py::return_value_policy::reference_internal)
      .def("set_groups", &Reducer::set_groups, py::arg("groups"))
      .def(
          "set_rule", [](Reducer& self, std::shared_ptr<Rule> rule) { self.set_rule(std::move(rule)); },
          py::arg("rule"))
      .def(
          "set_compared", [](Reducer& self, const py::bytes& digest) { self.set_compared(digest); },
          py::arg("digest"))
      .def("set_policy", &set_policy, py::arg("values"), py::arg("always"))
      .def(
          "attach",
          [](Reducer& self, const std::optional<at::Tensor>& tensor) {
            self.attach(tensor.value_or(at::Tensor()));
          },
          py::arg("tensor"))
      .def_property("recording", &Reducer::recording, &Reducer::set_recording)
      .def_property_readonly("ready_times", &ready_times_of)
      .def("synchronize", [](Reducer& self) { check(self.synchronize()); })
      .def("new_step", &Reducer::new_step)
      .def("abandon", &Reducer::abandon)
      .def("has_submitted", [](const Reducer& self) { return self.groups().has_submitted(); })
      .def("outstanding", [](const Reducer& self) { return self.groups().outstanding(); })
      .def_property_readonly("rounds", &Reducer::rounds)
      .def("names_in_flight", &Reducer::names_in_flight);
}

}  // namespace roundelay::bindings
