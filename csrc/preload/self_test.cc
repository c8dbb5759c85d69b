#include "preload/self_test.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "preload/hooks.h"
#include "preload/shim.h"

namespace roundelay::preload {
namespace {

// Calls the function as a program does that looks it up by name. Returns whether the shim heard of a change.
template <class Function, class... Values>
bool heard(void* library, const char* name, int& result, Values... values) {
  auto* const function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) return false;
  const std::uint64_t before = Shim::get().changes();
  result = function(values...);
  return Shim::get().changes() != before;
}

// Returns how many bytes the driver writes to say that memory is not managed.
std::size_t written_for_managed(CUdeviceptr memory) {
  unsigned char answer[8];
  std::memset(answer, 0xFF, sizeof answer);
  int which[] = {kIsManaged};
  void* into[] = {answer};
  using Ask = CUresult(unsigned, int*, void**, CUdeviceptr);
  if (real<Ask>(Hook::cuPointerGetAttributes)(1, which, into, memory) != 0) return 0;
  return static_cast<std::size_t>(std::find(std::begin(answer), std::end(answer), 0xFF) - std::begin(answer));
}

std::string driver_unheard() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return "the driver";
  int result = 0;
  CUdeviceptr memory = 0;
  if (!heard<CUresult(CUdeviceptr*, std::size_t)>(driver, "cuMemAlloc_v2", result, &memory, std::size_t{1}))
    return "cuMemAlloc";
  if (result != 0) return "cuMemAlloc failed: its cuMemFree";
  Shim::get().set_managed_bytes(written_for_managed(memory));
  if (!heard<CUresult(CUdeviceptr)>(driver, "cuMemFree_v2", result, memory)) return "cuMemFree";
  return {};
}

// The runtime may have ways into the driver of its own.
std::string runtime_unheard() {
  for (const char* const name : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    void* const runtime = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (runtime == nullptr) continue;
    int result = 0;
    void* memory = nullptr;
    if (!heard<int(void**, std::size_t)>(runtime, "cudaMalloc", result, &memory, std::size_t{1}))
      return "cudaMalloc";
    if (result != 0) return "cudaMalloc failed: its cudaFree";
    if (!heard<int(void*)>(runtime, "cudaFree", result, memory)) return "cudaFree";
  }
  return {};
}

}  // namespace

std::string what_goes_unheard() {
  const std::string driver = driver_unheard();
  return driver.empty() ? runtime_unheard() : driver;
}

}  // namespace roundelay::preload
