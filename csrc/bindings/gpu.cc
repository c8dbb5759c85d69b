// The part for GPUs: loaded apart from the core, where the process has a GPU.
#include <c10/core/Device.h>
#include <dlfcn.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "base/version.h"
#include "bindings/errors.h"
#include "bindings/life.h"
#include "bindings/topics.h"
#include "runtime/gpu/module.h"

namespace roundelay::bindings {
namespace {

Result<runtime::GpuModule*> load_gpu_module(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status::unavailable("cannot load " + path + ": " + ::dlerror());
  const auto entry = reinterpret_cast<runtime::GpuModuleEntry>(::dlsym(library, runtime::kGpuModuleEntry));
  if (entry == nullptr) return Status::unavailable(path + " is no GPU module of Roundelay");
  return entry();
}

// For all inits from now on. Called again it does nothing: the module stays for as long as the process.
void load_gpu(const std::string& module_path, const std::string& /*nccl_path*/,
              const std::string& device_type) {
  const c10::DeviceType type = c10::Device(device_type).type();
  runtime::GpuParts parts;
  {
    const py::gil_scoped_release no_gil;
    runtime::GpuModule* const module = value_of(load_gpu_module(module_path));
    parts.runtime = module->runtime;
    parts.kernels = module->kernels;
  }
  life_accelerator().serve(*parts.runtime, type);
  set_gpu_parts(parts);
}

}  // namespace

void bind_gpu(py::module_& module) {
  module.def("load_gpu", load_gpu, py::arg("module_path"), py::arg("nccl_path"), py::arg("device_type"));
}

}  // namespace roundelay::bindings
