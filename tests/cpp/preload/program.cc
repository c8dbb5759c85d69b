// Asks the driver about memory, as an MPI does, while memory comes and goes. `program on|off`: whether
// answers are to come from the cache. Ends with 1 and a line for the first thing that is wrong.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "preload/driver.h"

extern "C" {  // linked, not looked up
CUresult cuMemFree_v2(CUdeviceptr p);
std::int64_t fake_cuda_questions();
}

namespace {

using namespace roundelay::preload;

void expect(bool right, const std::string& what) {
  if (right) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::exit(1);
}

void* driver() { return ::dlopen("libcuda.so.1", RTLD_NOW); }

template <class Function>
Function* named(void* library, const char* name) {
  auto* const function = reinterpret_cast<Function*>(::dlsym(library, name));
  expect(function != nullptr, std::string("no ") + name);
  return function;
}

// Returns the type that the driver, or the cache, says.
unsigned ask(CUdeviceptr pointer) {
  static auto* const get =
      named<CUresult(unsigned, int*, void**, CUdeviceptr)>(driver(), "cuPointerGetAttributes");
  unsigned type = 77, managed = 77;
  std::uintptr_t context = 77;
  int which[] = {kMemoryType, kContext, kIsManaged};
  void* into[] = {&type, &context, &managed};
  expect(get(3, which, into, pointer) == 0, "cuPointerGetAttributes failed");
  expect(managed == 0, "managed");
  expect(context == (type == 0 ? 0U : 0xC0U), "the context");
  return type;
}

// Returns how many of these questions reach the driver.
std::int64_t reach_driver(CUdeviceptr pointer, unsigned type, int questions) {
  const std::int64_t before = fake_cuda_questions();
  for (int i = 0; i < questions; ++i) expect(ask(pointer + static_cast<unsigned>(i)) == type, "the type");
  return fake_cuda_questions() - before;
}

}  // namespace

int main(int /*count*/, char** arguments) {
  const bool on = std::string(arguments[1]) == "on";
  constexpr std::size_t kBytes = 4096;
  void* const runtime = ::dlopen("libcudart.so.12", RTLD_NOW);
  void* memory = nullptr;
  expect(named<int(void**, std::size_t)>(runtime, "cudaMalloc")(&memory, kBytes) == 0, "cudaMalloc");
  const auto device = reinterpret_cast<CUdeviceptr>(memory);
  reach_driver(device, kDeviceMemory, 2);  // warm-up
  const std::int64_t asked = reach_driver(device, kDeviceMemory, 1000);
  expect(asked == (on ? 0 : 1000), std::to_string(asked) + " of 1000 questions reached the driver");
  int ordinal = -1;
  auto* const ask_one = named<CUresult(void*, int, CUdeviceptr)>(driver(), "cuPointerGetAttribute");
  expect(ask_one(&ordinal, kDeviceOrdinal, device) == 0 && ordinal == 3, "the device");

  // The same address comes back as another kind, by each way in which memory ends and begins.
  expect(cuMemFree_v2(device) == 0, "cuMemFree");
  auto* const pin = named<CUresult(void**, std::size_t, unsigned)>(driver(), "cuMemHostAlloc");
  expect(pin(&memory, kBytes, 0) == 0 && reinterpret_cast<CUdeviceptr>(memory) == device, "cuMemHostAlloc");
  reach_driver(device, kHostMemory, 3);
  expect(named<CUresult(void*)>(driver(), "cuMemFreeHost")(memory) == 0, "cuMemFreeHost");
  expect(reach_driver(device, 0, 5) == 5, "plain host memory is not to be kept");
  auto* const map =
      named<CUresult(CUdeviceptr, std::size_t, std::size_t, unsigned long long, unsigned long long)>(
          driver(), "cuMemMap");
  expect(map(device, kBytes, 0, 0, 0) == 0, "cuMemMap");
  reach_driver(device, kDeviceMemory, 3);
  expect(named<CUresult(CUdeviceptr, std::size_t)>(driver(), "cuMemUnmap")(device, kBytes) == 0,
         "cuMemUnmap");
  reach_driver(device, 0, 1);
  return 0;
}
