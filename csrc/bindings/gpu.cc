// Loads the module for GPUs and NCCL, if the process has a GPU.
#include <c10/core/Device.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <utility>

#include "adapter/process.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"
#include "gpu/loader.h"
#include "gpu/module.h"
#include "platform/nccl/library.h"

namespace roundelay::bindings {
namespace {

// Serves all later inits. Later calls do nothing, because the module stays loaded until the process ends.
void load_gpu(const std::string& module_path, const std::string& nccl_path, const std::string& device_type) {
  const c10::DeviceType type = c10::Device(device_type).type();
  gpu::GpuParts parts;
  {
    const py::gil_scoped_release no_gil;
    const gpu::GpuModule* const module = value_of(gpu::load_gpu_module(module_path));
    check(gpu::check_devices(*module));
    parts.runtime = module->runtime;
    parts.kernels = module->kernels;
    parts.pointers = gpu::pointers_of(*parts.runtime);
    auto nccl = platform::open_nccl(nccl_path);
    if (nccl.ok()) {
      parts.nccl = std::move(nccl).value().release();  // stays open until the process ends
    } else {
      parts.why_no_nccl = nccl.status().message();
    }
  }
  adapter::accelerator().serve(*parts.runtime, *parts.kernels, type);
  const py::gil_scoped_release no_gil;
  set_gpu_parts(parts);
}

int nccl_version(const std::string& path) {
  const py::gil_scoped_release no_gil;
  const auto nccl = platform::open_nccl(path);
  return nccl.ok() ? (*nccl)->version() : 0;
}

std::string gpu_description() {
  const py::gil_scoped_release no_gil;
  const gpu::GpuParts parts = gpu_parts();
  if (parts.runtime == nullptr) return "";
  return value_of(parts.runtime->description()) + ", kernels for " + parts.kernels->compiled_for();
}

}  // namespace

void bind_gpu(py::module_& module) {
  module.def("load_gpu", load_gpu, py::arg("module_path"), py::arg("nccl_path"), py::arg("device_type"));
  module.def("nccl_version", nccl_version, py::arg("nccl_path"));
  module.def("gpu_description", gpu_description);
}

}  // namespace roundelay::bindings
