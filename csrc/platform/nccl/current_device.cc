#include "platform/nccl/current_device.h"

#include <dlfcn.h>

#include <string>
#include <utility>

namespace roundelay::platform::nccl {
namespace {

using Context = struct ContextState*;

// The functions of CUDA's driver interface that this file uses. It initialises the driver if nobody has.
struct Driver {
  int (*init)(unsigned int flags) = nullptr;
  int (*get_device)(int* handle, int device) = nullptr;
  int (*retain_primary)(Context* context, int handle) = nullptr;
  int (*release_primary)(int handle) = nullptr;
  int (*push)(Context context) = nullptr;
  int (*pop)(Context* context) = nullptr;
  bool complete = false;
};

template <typename Function>
bool resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Driver load_driver() {
  Driver driver;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return driver;
  driver.complete = resolve(library, "cuInit", driver.init) &&
                    resolve(library, "cuDeviceGet", driver.get_device) &&
                    resolve(library, "cuDevicePrimaryCtxRetain", driver.retain_primary) &&
                    resolve(library, "cuDevicePrimaryCtxRelease_v2", driver.release_primary) &&
                    resolve(library, "cuCtxPushCurrent_v2", driver.push) &&
                    resolve(library, "cuCtxPopCurrent_v2", driver.pop) && driver.init(0) == 0;
  return driver;
}

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

}  // namespace

Result<CurrentDevice> CurrentDevice::make(int device) {
  if (!driver().complete) {
    return Status::unavailable("NCCL needs NVIDIA's driver (libcuda.so.1), which cannot be loaded here");
  }
  int handle = -1;
  Context context = nullptr;
  if (driver().get_device(&handle, device) != 0 || driver().retain_primary(&context, handle) != 0) {
    return Status::unavailable("NVIDIA's driver has no usable device " + std::to_string(device));
  }
  if (driver().push(context) != 0) {
    static_cast<void>(driver().release_primary(handle));
    return Status::unavailable("NVIDIA's driver cannot make device " + std::to_string(device) + " current");
  }
  return CurrentDevice(handle);
}

CurrentDevice::CurrentDevice(CurrentDevice&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}

CurrentDevice::~CurrentDevice() {
  if (handle_ < 0) return;
  Context context = nullptr;
  static_cast<void>(driver().pop(&context));
  static_cast<void>(driver().release_primary(handle_));
}

}  // namespace roundelay::platform::nccl
