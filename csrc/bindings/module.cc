#include <torch/version.h>

#include "base/version.h"
#include "bindings/topics.h"

PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used()) {
  namespace bindings = roundelay::bindings;
  module.doc() = "The C++ core of Roundelay.";
  module.attr("__version__") = roundelay::version();
  module.def("torch_build_version", [] { return TORCH_VERSION; });
  bindings::bind_errors(module);
  bindings::bind_agreements(module);
  bindings::bind_c10d(module);
  bindings::bind_config(module);
  bindings::bind_global_state(module);
  bindings::bind_gpu(module);
  bindings::bind_operations(module);
  bindings::bind_gradient_pool(module);
  bindings::bind_gradients(module);
  bindings::bind_reducer(module);
  bindings::bind_gradient_hooks(module);
  bindings::bind_handles(module);
  bindings::bind_known_tensors(module);
  bindings::bind_master_pairs(module);
  bindings::bind_process_sets(module);
  bindings::bind_timeline(module);
  bindings::bind_top_k(module);
  bindings::bind_testing(module);
}
