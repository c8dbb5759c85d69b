#include "execute/gpu_buffers.h"

#include <utility>

#include "base/leak.h"

namespace roundelay::execute {

GpuBuffers::GpuBuffers(gpu::GpuParts parts, collective::Fabric& host, FramePool& frames,
                       gpu::GpuFabricOptions options)
    : DeviceBuffers(host, frames), parts_(std::move(parts)), fabric_(parts_, host, std::move(options)) {}

GpuBuffers::~GpuBuffers() {
  if (stream_ == nullptr) return;
  // Enqueued work may still use the buffers. The host cannot wait for it: a peer may be gone.
  const Result<GpuEventPtr> last = mark();
  const bool over = last.ok() && (*last)->reached().ok() && *(*last)->reached();
  if (!over) {
    leak(std::move(buffers_));
    leak(std::move(retired_));
    leak_workspaces();
  }
  parts_.runtime->free_stream(device_, stream_);
  if (idle_ != nullptr) parts_.runtime->free_stream(device_, idle_);
}

Status GpuBuffers::open(int device) {
  if (stream_ != nullptr) {
    if (device == device_) return {};
    return Status::invalid("a tensor is on GPU " + std::to_string(device) +
                           ", but this process works on GPU " + std::to_string(device_));
  }
  Result<GpuStream> stream = parts_.runtime->make_stream(device);
  if (!stream.ok()) return stream.status();
  fabric_.open(device);
  device_ = device;
  stream_ = *stream;
  math_.emplace(*parts_.runtime, *parts_.kernels, device_, stream_);
  return {};
}

Status GpuBuffers::take_in(const Batch& batch) {
  ROUNDELAY_RETURN_IF_ERROR(open(batch.entries.front()->gpu));
  for (const auto& entry : batch.entries) {
    if (entry->inputs_ready) ROUNDELAY_RETURN_IF_ERROR(entry->inputs_ready->hold_back(stream_));
  }
  return {};
}

Result<GpuEventPtr> GpuBuffers::mark() { return parts_.runtime->mark(device_, stream_); }

gpu::DeviceClock::Mark GpuBuffers::mark_time() {
  if (clock_.wants_reference(steady_now())) {
    if (idle_ == nullptr) {
      const Result<GpuStream> made = parts_.runtime->make_stream(device_);
      if (made.ok()) idle_ = *made;
    }
    if (idle_ != nullptr) clock_.refer_to(mark_time_in(idle_));
  }
  return mark_time_in(stream_);
}

gpu::DeviceClock::Mark GpuBuffers::mark_time_in(GpuStream stream) {
  const TimePoint called = steady_now();
  Result<GpuTimestampPtr> point = parts_.runtime->mark_time(device_, stream);
  return {point.ok() ? std::move(point).value() : nullptr, called};
}

Status GpuBuffers::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  return bytes == 0 ? Status{} : parts_.runtime->copy(device_, to, from, bytes, stream_);
}

Result<std::byte*> GpuBuffers::fusion_buffer(std::size_t bytes) {
  Scratch& buffer = buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  ROUNDELAY_RETURN_IF_ERROR(reserve(buffer, bytes));
  return buffer.memory.get();
}

// Allocates without waiting for the device. Freeing memory in use would wait: so it retires the old buffer.
Status GpuBuffers::reserve(Scratch& scratch, std::size_t bytes) {
  if (scratch.bytes >= bytes) return {};
  while (!retired_.empty()) {
    const Result<bool> over = retired_.front().last_use->reached();
    if (!over.ok()) return over.status();
    if (!*over) break;
    retired_.pop_front();
  }
  if (scratch.memory) {
    Result<GpuEventPtr> last_use = mark();
    if (!last_use.ok()) return last_use.status();
    retired_.push_back({std::move(scratch.memory), std::move(last_use).value()});
    scratch = {};
  }
  Result<GpuMemory> memory = parts_.runtime->allocate(device_, bytes);
  if (!memory.ok()) return memory.status();
  scratch = {std::move(memory).value(), bytes};
  // The fabric reduces the padding between tensors, too.
  return parts_.runtime->zero(device_, scratch.memory.get(), bytes, stream_);
}

Status GpuBuffers::pack(std::span<const PackItem> items, std::byte* buffer) {
  copies_.clear();
  for (const PackItem& item : items) {
    copies_.push_back(
        {buffer + item.slot.offset, item.source, item.slot.bytes, DType::kUInt8, DType::kUInt8});
  }
  return parts_.kernels->copy_batch(device_, copies_, {}, stream_);
}

Status GpuBuffers::unpack(std::span<const UnpackItem> items, const std::byte* buffer) {
  copies_.clear();
  for (const UnpackItem& item : items) {
    copies_.push_back(
        {item.destination, buffer + item.slot.offset, item.slot.bytes, DType::kUInt8, DType::kUInt8});
  }
  return parts_.kernels->copy_batch(device_, copies_, {}, stream_);
}

Result<std::byte*> GpuBuffers::result(const BatchTensor& tensor, const std::vector<std::int64_t>& shape) {
  const auto memory = tensor.entry->results->allocate(tensor.part, shape);
  if (!memory.ok()) return memory.status();
  if (memory->free) ROUNDELAY_RETURN_IF_ERROR(memory->free->hold_back(stream_));
  return memory->data;
}

}  // namespace roundelay::execute
