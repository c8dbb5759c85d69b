// Plays libcudart.so.12, which finds the driver as the real one does: dlopen(), dlsym() of cuGetProcAddress,
// and the rest by that. With FAKE_CUDART=private it allocates by a way that no hook sees.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "preload/driver.h"

namespace {

using GetProcAddress = CUresult(const char*, void**, int, std::uint64_t, int*);

template <class Function>
Function* look_up(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  static auto* const get = reinterpret_cast<GetProcAddress*>(::dlsym(driver, "cuGetProcAddress_v2"));
  void* function = nullptr;
  int status = 0;
  get(name, &function, 12000, 0, &status);
  return reinterpret_cast<Function*>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int cudaMalloc(void** p, std::size_t n) {
  const char* const way = std::getenv("FAKE_CUDART");
  if (way != nullptr && std::string_view(way) == "private") {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    auto* const alloc =
        reinterpret_cast<CUdeviceptr (*)(std::size_t)>(::dlsym(driver, "fake_cuda_private_alloc"));
    *p = reinterpret_cast<void*>(alloc(n));
    return 0;
  }
  CUdeviceptr memory = 0;
  const int result = look_up<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc")(&memory, n);
  *p = reinterpret_cast<void*>(memory);
  return result;
}
extern "C" __attribute__((visibility("default"))) int cudaFree(void* p) {
  return look_up<CUresult(CUdeviceptr)>("cuMemFree")(reinterpret_cast<CUdeviceptr>(p));
}
