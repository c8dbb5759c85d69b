// Each function adds one topic to the Python module when it is imported. python/roundelay/_core.pyi describes
// the whole.
#pragma once

#include <pybind11/pybind11.h>

namespace roundelay::bindings {

namespace py = pybind11;

void bind_errors(py::module_& module);
void bind_agreements(py::module_& module);
void bind_c10d(py::module_& module);
void bind_config(py::module_& module);
void bind_global_state(py::module_& module);
void bind_gpu(py::module_& module);
void bind_operations(py::module_& module);
void bind_gradient_pool(py::module_& module);
void bind_gradients(py::module_& module);
void bind_gradient_hooks(py::module_& module);
void bind_reducer(py::module_& module);
void bind_handles(py::module_& module);
void bind_known_tensors(py::module_& module);
void bind_master_pairs(py::module_& module);
void bind_process_sets(py::module_& module);
void bind_timeline(py::module_& module);
void bind_top_k(py::module_& module);
void bind_testing(py::module_& module);

}  // namespace roundelay::bindings
