// The hooks on an optimizer's parameters, which autograd calls hundreds of times in a step.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "adapter/bucket.h"
#include "adapter/gradient.h"
#include "base/clock.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"
#include "timeline/timeline.h"

namespace roundelay::bindings {
namespace {

using adapter::Gradient;
using adapter::HookRules;

// Returns true if compiled autograd runs this backward.
bool compiled_autograd_runs() {
  const auto dynamo =
      py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch._dynamo.compiled_autograd").ptr()));
  return dynamo && dynamo.attr("in_compiled_autograd_region").cast<bool>();
}

// Returns true if a function of C++, which only DistributedDataParallel's reducer puts there, runs after the
// parameter's node.
bool reducer_hooks(const at::Tensor& parameter) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (node == nullptr) return false;
  const auto& hooks = node->post_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const torch::autograd::utils::LambdaPostHook*>(hook.get()) != nullptr;
  });
}

// Runs before autograd adds to `.grad`. It is the parameter's own hook, as the graph's node is another one
// after `.data` has got another dtype or device. Autograd calls it with an undefined gradient, too.
struct BeforeHook {
  std::shared_ptr<Gradient> gradient;

  PyObject* operator()(const at::Tensor& incoming) const {
    check(gradient->expect(incoming));
    if (gradient->has_set_aside() && compiled_autograd_runs()) gradient->vacate();
    return Py_NewRef(Py_None);
  }
};

// Runs after autograd has added to `.grad`, or had nothing to add. Does what nearly every gradient of a
// bucket needs; calls `arrived` for the others: the first gradient of a backward, and those that are in no
// bucket or special.
struct AfterHook {
  std::shared_ptr<Gradient> gradient;
  std::shared_ptr<HookRules> rules;
  py::object arrived;

  PyObject* operator()(const at::Tensor& parameter) const {
    if (!gradient->count_pass(*rules)) return Py_NewRef(Py_None);
    if (rules->marking) mark(parameter);
    if (rules->skip_python() && arrived_in_bucket(parameter)) return Py_NewRef(Py_None);
    return PyObject_CallNoArgs(arrived.ptr());
  }

 private:
  void mark(const at::Tensor& parameter) const {
    const at::Tensor& local = parameter.grad();
    if (!local.defined() || local.layout() != at::kStrided) return;
    const auto elements = static_cast<std::uint64_t>(local.numel());
    const std::uint64_t rows = local.dim() > 0 ? static_cast<std::uint64_t>(local.size(0)) : 1;
    global_context()->timeline().record_gradient(
        {gradient->name(), elements, elements * local.element_size(), rows}, steady_now());
  }

  // Returns false if the gradient is special.
  [[nodiscard]] bool arrived_in_bucket(const at::Tensor& parameter) const {
    adapter::Bucket* const bucket = gradient->place().bucket;
    const at::Tensor& local = parameter.grad();
    if (bucket == nullptr || !local.defined() || local.layout() != at::kStrided) return false;
    return value_of(bucket->arrived(*gradient, parameter));
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
    return py::handle(self).cast<const Hook&>()(tensor);
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

}  // namespace

void bind_gradient_hooks(py::module_& module) {
  module.def("reducer_hooks", &reducer_hooks, py::arg("parameter"));
  py::class_<HookRules, std::shared_ptr<HookRules>>(module, "HookRules")
      .def(py::init())
      .def_readwrite("passes_per_step", &HookRules::passes_per_step)
      .def_readwrite("no_sync_depth", &HookRules::no_sync_depth)
      .def_readwrite("recording", &HookRules::recording)
      .def_readwrite("marking", &HookRules::marking)
      .def_readwrite("graph_task", &HookRules::graph_task);
  py::class_<BeforeHook>(module, "BeforeHook", py::dynamic_attr(), callable<BeforeHook>())
      .def(py::init<std::shared_ptr<Gradient>>(), py::arg("gradient"));
  py::class_<AfterHook>(module, "AfterHook", callable<AfterHook>())
      .def(py::init<std::shared_ptr<Gradient>, std::shared_ptr<HookRules>, py::object>(), py::arg("gradient"),
           py::arg("rules"), py::arg("arrived"));
}

}  // namespace roundelay::bindings
