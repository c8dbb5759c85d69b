// The Python classes for gradients that autograd has accumulated, and the hooks of their parameters.
#include "adapter/arrivals.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <utility>

#include "bindings/bound_pool.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using adapter::Arrival;
using adapter::ArrivalRules;
using adapter::Arrivals;
using adapter::Holds;

// Runs before autograd adds to `.grad`. It is called hundreds of times in a step, like AfterHook.
struct BeforeHook {
  std::shared_ptr<Arrival> gradient;
  py::object make_room;  // called if autograd must not add to `.grad`

  PyObject* operator()(PyObject* /*gradient*/) const {
    return gradient->holds == Holds::kLocal ? Py_NewRef(Py_None) : PyObject_CallNoArgs(make_room.ptr());
  }
};

// Runs after autograd has added to `.grad`.
struct AfterHook {
  std::shared_ptr<Arrival> gradient;
  std::shared_ptr<ArrivalRules> rules;
  py::object arrived;  // called if Python must deal with the gradient: the last of a bucket, or a special one

  PyObject* operator()(PyObject* parameter) const {
    return done(parameter) ? Py_NewRef(Py_None) : PyObject_CallNoArgs(arrived.ptr());
  }

 private:
  [[nodiscard]] bool done(PyObject* parameter) const {
    try {
      return gradient->arrive(*rules, THPVariable_Unpack(parameter), global_accelerator());
    } catch (...) {
      return false;  // torch throws the same again in `arrived`
    }
  }
};

// Replaces a __call__ of py::class_, which would cost as much as the hooks themselves.
template <typename Hook>
PyObject* call(PyObject* self, PyObject* arguments, PyObject* /*keywords*/) {
  if (PyTuple_GET_SIZE(arguments) != 1 || !THPVariable_Check(PyTuple_GET_ITEM(arguments, 0))) {
    PyErr_SetString(PyExc_TypeError, "a gradient's hook takes one tensor");
    return nullptr;
  }
  try {
    return py::handle(self).cast<const Hook&>()(PyTuple_GET_ITEM(arguments, 0));
  } catch (const std::exception& error) {  // the hook was made without its constructor
    PyErr_SetString(PyExc_TypeError, error.what());
    return nullptr;
  }
}

template <typename Hook>
py::custom_type_setup callable() {
  return py::custom_type_setup([](PyHeapTypeObject* type) { type->ht_type.tp_call = &call<Hook>; });
}

std::optional<at::Tensor> unless_undefined(at::Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}

void bind_one(py::module_& module) {
  py::class_<ArrivalRules, std::shared_ptr<ArrivalRules>>(module, "ArrivalRules")
      .def(py::init())
      .def_readwrite("passes_per_step", &ArrivalRules::passes_per_step)
      .def_readwrite("holding_back", &ArrivalRules::holding_back)
      .def_readwrite("recording", &ArrivalRules::recording)
      .def_readwrite("noted_in", &ArrivalRules::noted_in);
  py::class_<Arrival, std::shared_ptr<Arrival>>(module, "Arrival")
      .def(py::init<const at::Tensor&>(), py::arg("parameter"))
      .def_property_readonly("parameter", [](const Arrival& self) { return unless_undefined(self.locked()); })
      .def_property_readonly("wanted", &Arrival::wanted)
      .def_property(
          "holds", [](const Arrival& self) { return static_cast<int>(self.holds); },
          [](Arrival& self, int holds) { self.holds = static_cast<Holds>(holds); })
      .def_readwrite("accumulated", &Arrival::accumulated)
      .def_readwrite("replaced", &Arrival::replaced)
      .def("land",
           [](Arrival& self) { return unless_undefined(std::exchange(self.in_flight, at::Tensor())); });
  py::class_<BeforeHook>(module, "BeforeHook", py::dynamic_attr(), callable<BeforeHook>())
      .def(py::init<std::shared_ptr<Arrival>, py::object>(), py::arg("gradient"), py::arg("make_room"));
  py::class_<AfterHook>(module, "AfterHook", callable<AfterHook>())
      .def(py::init<std::shared_ptr<Arrival>, std::shared_ptr<ArrivalRules>, py::object>(),
           py::arg("gradient"), py::arg("rules"), py::arg("arrived"));
}

}  // namespace

void bind_arrivals(py::module_& module) {
  bind_one(module);
  py::class_<Arrivals>(module, "Arrivals")
      .def(py::init([](BoundPool* pool) {
             return std::make_unique<Arrivals>(pool == nullptr ? nullptr : &pool->pool);
           }),
           py::arg("pool"), py::keep_alive<1, 2>())
      .def_readwrite("passes", &Arrivals::passes)
      .def("add", &Arrivals::add, py::arg("gradient"), py::arg("entry"))
      .def(
          "note",
          [](Arrivals& self, Arrival& gradient, int kind) {
            return value_of(self.note(gradient, kind, global_accelerator()));
          },
          py::arg("gradient"), py::arg("kind"))
      .def("leave", &Arrivals::leave, py::arg("gradient"))
      .def("clear", &Arrivals::clear)
      .def("waits", &Arrivals::waits)
      .def(
          "waiting", [](const Arrivals& /*self*/, const Arrival& gradient) { return gradient.kind; },
          py::arg("gradient"))
      .def("gather", [](Arrivals& self) { check(self.gather()); })
      .def(
          "take_in",
          [](Arrivals& self, Arrival& gradient) {
            return value_of(self.take_in(gradient, gradient.locked()));
          },
          py::arg("gradient"))
      .def("depart", &Arrivals::depart);
}

}  // namespace roundelay::bindings
