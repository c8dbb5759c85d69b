// The ways in which libraries look up the driver's functions: dlsym() and cuGetProcAddress(). The CUDA
// runtime uses both.
#include <dlfcn.h>

#include <cstdint>

#include "preload/hooks.h"

using roundelay::preload::Hook;

namespace roundelay::preload {
namespace {

using Dlsym = void*(void* handle, const char* name);

// Returns the C library's function, by the versions that it has had.
Dlsym* find_dlsym() {
  for (const char* const version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
    if (void* const function = ::dlvsym(RTLD_NEXT, "dlsym", version))
      return reinterpret_cast<Dlsym*>(function);
  }
  return nullptr;
}

Dlsym* the_dlsym() {
  static Dlsym* const function = find_dlsym();
  return function;
}

constexpr std::uint64_t kPerThreadDefaultStream = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

void put_hook(const char* name, void** function, int version, std::uint64_t flags) {
  if (function == nullptr || *function == nullptr) return;
  const Hook hook = hook_wanted(name, version, (flags & kPerThreadDefaultStream) != 0);
  if (hook == Hook::kCount) return;
  found(hook, *function);
  *function = function_of(hook);
}

}  // namespace

void* real_dlsym(void* handle, const char* name) { return the_dlsym()(handle, name); }

}  // namespace roundelay::preload

// RTLD_NEXT depends on who calls. So that call is a jump, which leaves the caller's return address in place;
// only builds without optimisation make it a call.
extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) noexcept {
  using namespace roundelay::preload;
  const Hook hook = handle == RTLD_NEXT ? Hook::kCount : hook_named(name);
  if (hook != Hook::kCount) {
    // In a process without a driver, all that may be found is this library's own function.
    void* const theirs = real_dlsym(handle, name);
    return theirs == nullptr || real_address(hook) == nullptr ? nullptr : function_of(hook);
  }
  return the_dlsym()(handle, name);
}

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress(const char* name, void** function,
                                                                            int version,
                                                                            std::uint64_t flags) {
  using namespace roundelay::preload;
  const CUresult result = real<CUresult(const char*, void**, int, std::uint64_t)>(Hook::cuGetProcAddress)(
      name, function, version, flags);
  if (result == 0) put_hook(name, function, version, flags);
  return result;
}

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* name,
                                                                               void** function, int version,
                                                                               std::uint64_t flags,
                                                                               int* status) {
  using namespace roundelay::preload;
  const CUresult result = real<CUresult(const char*, void**, int, std::uint64_t, int*)>(
      Hook::cuGetProcAddress_v2)(name, function, version, flags, status);
  if (result == 0) put_hook(name, function, version, flags);
  return result;
}
