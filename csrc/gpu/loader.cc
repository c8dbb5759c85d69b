#include "gpu/loader.h"

#include <dlfcn.h>

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

}  // namespace roundelay::gpu
