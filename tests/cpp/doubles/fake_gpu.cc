#include "tests/cpp/doubles/fake_gpu.h"

#include <cassert>
#include <cstring>
#include <utility>

namespace roundelay::doubles {

FakeGpu::FakeGpu(Options options)
    : options_(std::move(options)),
      streams_(std::make_shared<FakeStreams>(options_.devices, options_.seed, options_.longest_delay)) {}

FakeGpu::~FakeGpu() { streams_->end(); }

Result<std::string> FakeGpu::description() { return std::string("a fake GPU"); }

Result<int> FakeGpu::device_count() { return options_.devices; }

Result<std::string> FakeGpu::identity(int device) {
  ROUNDELAY_RETURN_IF_ERROR(streams_->check(device));
  return options_.identity + std::to_string(device);
}

Result<Allocation> FakeGpu::ask(const void* address) {
  ++questions_;
  ROUNDELAY_RETURN_IF_ERROR(streams_->health());
  return memory_->find(address);
}

bool FakeGpu::tell(std::shared_ptr<MemoryListener> listener) {
  memory_->tell(std::move(listener));
  return true;
}

Result<GpuStream> FakeGpu::make_stream(int device) { return streams_->make(device); }

void FakeGpu::free_stream(int /*device*/, GpuStream stream) { streams_->free(stream); }

Result<GpuEventPtr> FakeGpu::mark(int device, GpuStream stream) { return streams_->mark(device, stream); }

Result<bool> FakeGpu::captures(int device, GpuStream stream) {
  auto found = streams_->find(device, stream);
  if (!found.ok()) return found.status();
  return (*found)->captured();
}

void FakeGpu::capture(int device, GpuStream stream, bool begins) {
  auto found = streams_->find(device, stream);
  assert(found.ok());
  (*found)->capture(begins);
}

Status FakeGpu::fits(int device) const {
  if (device < options_.fitting) return {};
  return Status::unavailable("fake GPU " + std::to_string(device) +
                             " is not what the kernels are compiled for");
}

Result<GpuTimestampPtr> FakeGpu::mark_time(int device, GpuStream stream) {
  ++timestamps_;
  return streams_->mark_time(device, stream);
}

Result<GpuMemory> FakeGpu::allocate(int device, std::size_t bytes) {
  ROUNDELAY_RETURN_IF_ERROR(streams_->check(device));
  return allocate_as(FakeMemory::Kind::kDevice, bytes);
}

Result<GpuMemory> FakeGpu::allocate_pinned(std::size_t bytes) {
  return allocate_as(FakeMemory::Kind::kPinned, bytes);
}

Result<GpuMemory> FakeGpu::allocate_as(FakeMemory::Kind kind, std::size_t bytes) {
  ROUNDELAY_RETURN_IF_ERROR(streams_->health());
  return memory_->allocate(kind, bytes);
}

Status FakeGpu::check_memory(ConstByteSpan bytes) {
  if (bytes.empty() || memory_->kind_of(bytes) != FakeMemory::Kind::kNone) return {};
  return Status::aborted(std::to_string(bytes.size()) +
                         " bytes for the device are not its memory, and not pinned");
}

Status FakeGpu::copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, GpuStream stream) {
  const ConstByteSpan source(from, bytes), target(to, bytes);
  ROUNDELAY_RETURN_IF_ERROR(check_memory(source));
  ROUNDELAY_RETURN_IF_ERROR(check_memory(target));
  return enqueue(device, stream, [=, memory = memory_] {
    memory->expect_live(source);
    memory->expect_live(target);
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}

Status FakeGpu::zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) {
  const ConstByteSpan target(to, bytes);
  ROUNDELAY_RETURN_IF_ERROR(check_memory(target));
  return enqueue(device, stream, [=, memory = memory_] {
    memory->expect_live(target);
    if (bytes > 0) std::memset(to, 0, bytes);
  });
}

Status FakeGpu::drain(int device, GpuStream stream) {
  auto found = streams_->find(device, stream);
  if (!found.ok()) return found.status();
  const bool reached = (*found)->wait((*found)->mark(), Deadline::after(std::chrono::minutes(1)));
  ROUNDELAY_RETURN_IF_ERROR(streams_->health());
  return reached ? Status{} : Status::aborted("the fake device's stream is still busy after a minute");
}

Status FakeGpu::enqueue(int device, GpuStream stream, Work work, Work give_up) {
  auto found = streams_->find(device, stream);
  if (!found.ok()) return found.status();
  (*found)->enqueue(std::move(work), std::move(give_up));
  return {};
}

FakeGpu::Hold::Hold(FakeGpu& gpu, int device, GpuStream stream) {
  auto found = gpu.streams_->find(device, stream);
  assert(found.ok());
  one_ = std::move(*found);
  one_->hold();
}

FakeGpu::Hold::~Hold() {
  if (all_) all_->release_all();
  if (one_) one_->release();
}

}  // namespace roundelay::doubles
