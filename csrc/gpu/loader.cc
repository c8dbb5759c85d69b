#include "gpu/loader.h"

#include <dlfcn.h>

#include <vector>

#include "base/log.h"
#include "base/version.h"

namespace roundelay::gpu {

Result<GpuModule*> load_gpu_module(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status::unavailable("cannot load " + path + ": " + ::dlerror());
  const auto entry = reinterpret_cast<GpuModuleEntry>(::dlsym(library, kGpuModuleEntry));
  if (entry == nullptr) return Status::unavailable(path + " is no GPU module of Roundelay");
  GpuModule* const module = entry();
  if (module->version != version())
    return Status::unavailable(path + " is of version " + module->version + ", the core of version " +
                               version() + "; install the package again");
  return module;
}

Status check_devices(const GpuModule& module) {
  const Result<int> count = module.runtime->device_count();
  if (!count.ok()) return count.status();
  std::vector<Status> unfit;
  for (int device = 0; device < *count; ++device) {
    if (Status status = module.kernels->fits(device); !status.ok()) unfit.push_back(std::move(status));
  }
  if (!unfit.empty() && unfit.size() == static_cast<std::size_t>(*count)) return unfit.front();
  for (const Status& status : unfit) log(LogLevel::kWarning, status.message());
  return {};
}

}  // namespace roundelay::gpu
