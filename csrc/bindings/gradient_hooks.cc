// The hooks on an optimizer's parameters, and the end of backwards.
#include "gradients/hooks.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "adapter/autograd.h"
#include "bindings/errors.h"
#include "bindings/topics.h"
#include "bindings/weak_owner.h"
#include "gradients/step_watch.h"

namespace roundelay::bindings {
namespace {

using gradients::backward_end;
using gradients::Gradient;
using gradients::GradientMarks;
using gradients::Reducer;
using gradients::StepWatch;

// Calls a method of a Python object at the end of a backward. No rank waits for another.
class PythonListener final : public gradients::Listener {
 public:
  explicit PythonListener(const py::object& owner) : owner_(owner) {}
  [[nodiscard]] Order order() const override { return {-1, 0}; }  // before those that wait for other ranks
  bool backward_ended() override { return true; }
  [[nodiscard]] Status begin_round(bool /*final*/, bool /*alone*/) override { return {}; }
  [[nodiscard]] Status end_round() override {
    owner_.call("backward_ended");
    return {};
  }

 private:
  const WeakOwner owner_;
};

class BeforeHook {
 public:
  explicit BeforeHook(std::shared_ptr<Gradient> gradient) : gradient_(std::move(gradient)) {}
  // Keeps this hook behind all others of the parameter that run after autograd has added to `.grad`.
  void keep_last(py::object hooks, py::object key) {
    hooks_ = std::move(hooks);
    key_ = std::move(key);
  }

  void operator()(const at::Tensor& incoming) const {
    if (!hooks_.is_none() && py::len(hooks_) > 1) move_last();
    check(gradients::before_accumulation(*gradient_, incoming));
  }

 private:
  // The hooks of others may change `.grad`, which must not be in flight then. torch calls hooks in the order
  // of a plain dict, which OrderedDict's move_to_end() does not change.
  void move_last() const {
    if (py::iter(hooks_.attr("__reversed__")())->equal(key_)) return;
    const py::object hook = hooks_.attr("pop")(key_);
    hooks_[key_] = hook;
  }

  std::shared_ptr<Gradient> gradient_;
  py::object hooks_ = py::none();
  py::object key_ = py::none();
};

struct AfterHook {
  std::shared_ptr<Gradient> gradient;
  std::shared_ptr<Reducer> reducer;

  void operator()(const at::Tensor& parameter) const {
    check(gradients::after_accumulation(gradient, *reducer, parameter));
  }
};

struct MarkHook {
  std::shared_ptr<Gradient> gradient;
  std::shared_ptr<GradientMarks> marks;

  void operator()(const at::Tensor& parameter) const {
    marks->after_accumulation(*gradient, parameter);
    check(gradients::end_if_compiled());
  }
};

struct LocalHook {
  std::shared_ptr<PythonListener> listener;

  void operator()(const at::Tensor& /*parameter*/) const {
    backward_end().add(listener);
    check(gradients::end_if_compiled());
  }
};

// Does not watch backwards that compiled autograd runs.
struct WatchHook {
  std::shared_ptr<StepWatch> watch;
  std::shared_ptr<WeakOwner> owner;
  std::size_t number;

  void operator()(const at::Tensor& parameter) const {
    if (!adapter::compiled_autograd_runs() && watch->changed(parameter)) owner->call("changed", number);
  }
};

// The type's call slot. A __call__ that pybind11 binds would cost as much as the hook's work.
template <typename Hook>
PyObject* call(PyObject* self, PyObject* arguments, PyObject* /*keywords*/) {
  PyObject* const given = PyTuple_GET_SIZE(arguments) == 1 ? PyTuple_GET_ITEM(arguments, 0) : nullptr;
  if (given == nullptr || (given != Py_None && !THPVariable_Check(given))) {
    PyErr_SetString(PyExc_TypeError, "a gradient's hook takes one tensor or None");
    return nullptr;
  }
  try {
    const at::Tensor tensor = given == Py_None ? at::Tensor() : THPVariable_Unpack(given);
    py::handle(self).cast<const Hook&>()(tensor);
    return Py_NewRef(Py_None);
  } catch (const py::cast_error& error) {  // the hook was made without its constructor
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
  return nullptr;
}

template <typename Hook>
py::custom_type_setup callable() {
  return py::custom_type_setup([](PyHeapTypeObject* type) { type->ht_type.tp_call = &call<Hook>; });
}

// The engine carries torch's own error across its threads, and no other one.
void end_backward(int task) {
  const py::gil_scoped_acquire gil;
  try {
    check(backward_end().ended(task));
  } catch (...) {
    py::detail::try_translate_exceptions();
    python_error error;
    error.persist();
    throw std::move(error);
  }
}

void queue_end(int task) {
  torch::autograd::Engine::get_default_engine().queue_callback([task] { end_backward(task); });
}

// Calls a function of roundelay.torch._internal.optimizer.backward_end, which needs Python's handles of
// hooks.
void pass_on() { py::module_::import("roundelay.torch._internal.optimizer.backward_end").attr("pass_on")(); }

}  // namespace

void bind_gradient_hooks(py::module_& module) {
  backward_end().use({queue_end, pass_on});
  module.def("reducer_hooks", &adapter::reducer_hooks, py::arg("parameter"));
  module.def("queue_backward_end", [] { backward_end().queue(); });
  module.def("backward_ns", [] { return backward_end().total().count(); });
  py::class_<GradientMarks, std::shared_ptr<GradientMarks>>(module, "GradientMarks")
      .def(py::init())
      .def_property_readonly("rules", &GradientMarks::rules, py::return_value_policy::reference_internal);
  py::class_<PythonListener, std::shared_ptr<PythonListener>>(module, "BackwardListener")
      .def(py::init<const py::object&>(), py::arg("owner"));
  py::class_<BeforeHook>(module, "BeforeHook", py::dynamic_attr(), callable<BeforeHook>())
      .def(py::init<std::shared_ptr<Gradient>>(), py::arg("gradient"))
      .def("keep_last", &BeforeHook::keep_last, py::arg("hooks"), py::arg("key"));
  py::class_<AfterHook>(module, "AfterHook", callable<AfterHook>())
      .def(py::init<std::shared_ptr<Gradient>, std::shared_ptr<Reducer>>(), py::arg("gradient"),
           py::arg("reducer"));
  py::class_<MarkHook>(module, "MarkHook", callable<MarkHook>())
      .def(py::init<std::shared_ptr<Gradient>, std::shared_ptr<GradientMarks>>(), py::arg("gradient"),
           py::arg("marks"));
  py::class_<LocalHook>(module, "LocalHook", callable<LocalHook>())
      .def(py::init<std::shared_ptr<PythonListener>>(), py::arg("listener"));
  py::class_<StepWatch, std::shared_ptr<StepWatch>>(module, "StepWatch")
      .def(py::init<const at::Tensor&>(), py::arg("stepped"))
      .def("forget", &StepWatch::forget);
  py::class_<WatchHook>(module, "WatchHook", callable<WatchHook>())
      .def(py::init([](std::shared_ptr<StepWatch> watch, const py::object& owner, std::size_t number) {
             return WatchHook{std::move(watch), std::make_shared<WeakOwner>(owner), number};
           }),
           py::arg("watch"), py::arg("owner"), py::arg("number"));
}

}  // namespace roundelay::bindings
