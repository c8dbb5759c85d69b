// Asks the driver about memory, as an MPI does, while memory comes and goes. `program on|off`: whether
// answers are to come from the cache; `program node|any_node|old_node|captured`: until a graph allocates
// memory, this way. Ends with 1 and a line for the first thing that is wrong.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/memory_place.h"
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

// Returns a function of the driver that a program of this version of CUDA looks up.
template <class Function>
Function* looked_up(const char* name, int version) {
  using GetProcAddress = CUresult(const char*, void**, int, std::uint64_t, int*);
  void* function = nullptr;
  int status = 0;
  const CUresult result =
      named<GetProcAddress>(driver(), "cuGetProcAddress_v2")(name, &function, version, 0, &status);
  expect(result == 0, std::string("no ") + name);
  return reinterpret_cast<Function*>(function);
}

constexpr std::size_t kBytes = 4096;

// Returns memory that the runtime has allocated, after some questions about it.
CUdeviceptr known_memory() {
  void* const runtime = ::dlopen("libcudart.so.12", RTLD_NOW);
  void* memory = nullptr;
  expect(named<int(void**, std::size_t)>(runtime, "cudaMalloc")(&memory, kBytes) == 0, "cudaMalloc");
  const auto device = reinterpret_cast<CUdeviceptr>(memory);
  reach_driver(device, kDeviceMemory, 2);
  return device;
}

void expect_cached(CUdeviceptr memory, bool cached) {
  const std::int64_t asked = reach_driver(memory, kDeviceMemory, 1000);
  expect(asked == (cached ? 0 : 1000), std::to_string(asked) + " of 1000 questions reached the driver");
}

// The same address comes back as another kind, by each way in which memory ends and begins.
void change_kinds(CUdeviceptr device) {
  expect(cuMemFree_v2(device) == 0, "cuMemFree");
  void* memory = nullptr;
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
}

struct Listener final : roundelay::MemoryListener {
  void begin_change(std::uintptr_t /*base*/, std::size_t /*bytes*/) override {}
  void end_change() override {}
  void stop_keeping() override { stopped = true; }
  bool stopped = false;
};

using AddNode = CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, const void*, std::size_t, int*);
using OldAddNode = CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, int*);
using AllocAsync = CUresult(CUdeviceptr*, std::size_t, CUstream);

// A graph gets memory of its own.
void allocate_in_graph(const std::string& way) {
  int kind = kMemAllocNode;
  if (way == "node") {
    named<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, void*)>(
        driver(), "cuGraphAddMemAllocNode")(nullptr, nullptr, nullptr, 0, nullptr);
  } else if (way == "any_node") {
    looked_up<AddNode>("cuGraphAddNode", 12030)(nullptr, nullptr, nullptr, nullptr, 0, &kind);
  } else if (way == "old_node") {
    looked_up<OldAddNode>("cuGraphAddNode", 12020)(nullptr, nullptr, nullptr, 0, &kind);
  } else {
    int captured = 0;
    CUdeviceptr memory = 0;
    named<AllocAsync>(driver(), "cuMemAllocAsync")(&memory, kBytes, reinterpret_cast<CUstream>(&captured));
  }
}

void stop_at_graph(const std::string& way) {
  const CUdeviceptr device = known_memory();
  Listener listener, late;
  auto* const hear = named<bool(roundelay::MemoryListener*)>(RTLD_DEFAULT, "roundelay_hear_of_memory");
  expect(hear(&listener), "the listener hears");
  // A graph's other nodes, and memory in the order of a stream, are no matter.
  int kernel_node = 0;
  looked_up<AddNode>("cuGraphAddNode", 12030)(nullptr, nullptr, nullptr, nullptr, 0, &kernel_node);
  CUdeviceptr memory = 0;
  named<AllocAsync>(driver(), "cuMemAllocAsync")(&memory, kBytes, nullptr);
  expect_cached(device, true);
  expect(!listener.stopped, "the listener was stopped early");
  allocate_in_graph(way);
  expect_cached(device, false);
  expect(listener.stopped, "the listener was not stopped");
  expect(!hear(&late), "a late listener hears");
}

}  // namespace

int main(int /*count*/, char** arguments) {
  const std::string how = arguments[1];
  if (how != "on" && how != "off") {
    stop_at_graph(how);
    return 0;
  }
  const CUdeviceptr device = known_memory();
  expect_cached(device, how == "on");
  int ordinal = -1;
  auto* const ask_one = named<CUresult(void*, int, CUdeviceptr)>(driver(), "cuPointerGetAttribute");
  expect(ask_one(&ordinal, kDeviceOrdinal, device) == 0 && ordinal == 3, "the device");
  change_kinds(device);
  return 0;
}
