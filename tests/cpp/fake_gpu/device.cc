#include "tests/cpp/fake_gpu/device.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/version.h"
#include "gpu/module.h"
#include "tests/cpp/fake_gpu/forgetful.h"

namespace roundelay::fake_gpu {
namespace {

constexpr int kMostDevices = 4;

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct Streams {
  Mutex mutex;
  std::vector<GpuStream> natives GUARDED_BY(mutex){nullptr};  // by id
};

Streams& streams() {
  static auto& streams = *new Streams;
  return streams;
}

struct Current {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kMostDevices> streams{};
};
thread_local Current current;

c10::Stream stream_of(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, index), id);
}

}  // namespace

// Never destroyed: streams run until the process ends.
doubles::FakeGpu& gpu() {
  static auto& gpu = *new doubles::FakeGpu(
      {.devices = device_count(),
       .seed = static_cast<unsigned>(number("FAKE_GPU_SEED", static_cast<int>(::getpid()))),
       .longest_delay = std::chrono::microseconds(number("FAKE_GPU_DELAY_US", 200)),
       .identity = "fake GPU of process " + std::to_string(::getpid()) + ", ",
       .fitting = number("FAKE_GPU_FITTING", kMostDevices)});
  return gpu;
}

int device_count() {
  static const int count = number("FAKE_GPU_DEVICES", 1);
  return count;
}

c10::DeviceIndex current_device() { return current.device; }
void set_current_device(c10::DeviceIndex index) {
  if (index >= 0) current.device = index;
}

c10::Stream current_stream(c10::DeviceIndex index) {
  const c10::DeviceIndex device = index < 0 ? current.device : index;
  return stream_of(device, current.streams.at(static_cast<std::size_t>(device)));
}

c10::Stream exchange_current_stream(c10::Stream stream) {
  const c10::Stream before = current_stream(stream.device_index());
  current.streams.at(static_cast<std::size_t>(stream.device_index())) = stream.id();
  return before;
}

c10::Stream new_stream(c10::DeviceIndex index) {
  const c10::DeviceIndex device = index < 0 ? current.device : index;
  const GpuStream made = value_of(gpu().make_stream(device));
  MutexLock lock(streams().mutex);
  streams().natives.push_back(made);
  return stream_of(device, static_cast<c10::StreamId>(streams().natives.size() - 1));
}

GpuStream native(const c10::Stream& stream) {
  MutexLock lock(streams().mutex);
  return streams().natives.at(static_cast<std::size_t>(stream.id()));
}

GpuEventPtr mark(const c10::Stream& stream) {
  return value_of(gpu().mark(stream.device_index(), native(stream)));
}

void drain(const c10::Stream& stream) { check(gpu().drain(stream.device_index(), native(stream))); }

void enqueue(const c10::Stream& stream, std::function<void()> work) {
  check(gpu().enqueue(stream.device_index(), native(stream), std::move(work)));
}

void check(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

}  // namespace roundelay::fake_gpu

// The device that the core loads: this one. With FAKE_GPU_FORGETS=1 streams ignore its events.
extern "C" __attribute__((visibility("default"))) roundelay::gpu::GpuModule* roundelay_gpu() {
  using namespace roundelay;
  doubles::FakeGpu& gpu = fake_gpu::gpu();
  static const bool forgets = fake_gpu::number("FAKE_GPU_FORGETS", 0) != 0;
  static GpuRuntime& device =
      forgets ? static_cast<GpuRuntime&>(*new fake_gpu::Forgetful(gpu)) : static_cast<GpuRuntime&>(gpu);
  static auto& module = *new gpu::GpuModule{version(), &device, &gpu};
  return &module;
}

// Limits all memory to this many bytes. Tests call it.
extern "C" __attribute__((visibility("default"))) void fake_gpu_limit_memory(std::size_t bytes) {
  roundelay::fake_gpu::gpu().limit_memory(bytes);
}

// Allows no more memory than is in use now, torch's cache included. Tests call it.
extern "C" __attribute__((visibility("default"))) void fake_gpu_use_up_memory() {
  roundelay::doubles::FakeGpu& gpu = roundelay::fake_gpu::gpu();
  gpu.limit_memory(gpu.memory_in_use());
}

extern "C" __attribute__((visibility("default"))) void fake_gpu_empty_cache() {
  roundelay::fake_gpu::empty_cache();
}

// Keeps all streams from starting work while it is held. Tests call it.
extern "C" __attribute__((visibility("default"))) void fake_gpu_hold(bool held) {
  using Hold = roundelay::doubles::FakeGpu::Hold;
  static Hold* hold = nullptr;
  if (held && hold == nullptr) hold = new Hold(roundelay::fake_gpu::gpu());
  if (!held) delete std::exchange(hold, nullptr);
}

// Does the same for one stream.
extern "C" __attribute__((visibility("default"))) void fake_gpu_hold_stream(std::int64_t id, bool held) {
  using namespace roundelay;
  static auto& holds = *new std::map<std::int64_t, doubles::FakeGpu::Hold>;
  const c10::Stream stream = fake_gpu::stream_of(0, id);
  if (held) holds.try_emplace(id, fake_gpu::gpu(), 0, fake_gpu::native(stream));
  if (!held) holds.erase(id);
}

// Begins or ends the capture of a graph from a stream.
extern "C" __attribute__((visibility("default"))) void fake_gpu_capture(std::int64_t id, bool begins) {
  using namespace roundelay;
  fake_gpu::gpu().capture(0, fake_gpu::native(fake_gpu::stream_of(0, id)), begins);
}
