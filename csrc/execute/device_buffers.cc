#include "execute/device_buffers.h"

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/leak.h"
#include "execute/technique_workspace.h"

namespace roundelay::execute {

DeviceBuffers::DeviceBuffers(collective::Fabric& host, FramePool& frames) : host_(host), frames_(frames) {}

DeviceBuffers::~DeviceBuffers() = default;

std::unique_ptr<TechniqueWorkspace> DeviceBuffers::take_workspace() {
  if (workspaces_.empty()) return std::make_unique<TechniqueWorkspace>(*this);
  std::unique_ptr<TechniqueWorkspace> workspace = std::move(workspaces_.back());
  workspaces_.pop_back();
  return workspace;
}

void DeviceBuffers::return_workspace(std::unique_ptr<TechniqueWorkspace> workspace) {
  workspace->reset();
  workspaces_.push_back(std::move(workspace));
}

void DeviceBuffers::leak_workspaces() { leak(std::move(workspaces_)); }

HostBuffers::HostBuffers(collective::Fabric& fabric, FramePool& frames, std::size_t keep_bytes)
    : DeviceBuffers(fabric, frames), buffers_{FusionBuffer(keep_bytes), FusionBuffer(keep_bytes)} {}

Status HostBuffers::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return {};
}

Result<std::byte*> HostBuffers::fusion_buffer(std::size_t bytes) {
  FusionBuffer& buffer = buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  ROUNDELAY_RETURN_IF_ERROR(buffer.reserve(bytes));
  return buffer.data();
}

Status HostBuffers::pack(std::span<const PackItem> items, std::byte* buffer) {
  execute::pack(items, buffer);
  return {};
}

Status HostBuffers::unpack(std::span<const UnpackItem> items, const std::byte* buffer) {
  execute::unpack(items, buffer);
  return {};
}

Result<std::byte*> HostBuffers::result(const BatchTensor& tensor, const std::vector<std::int64_t>& shape) {
  const auto memory = tensor.entry->results->allocate(tensor.part, shape);
  if (!memory.ok()) return memory.status();
  return memory->data;
}

Status HostBuffers::reserve(Scratch& scratch, std::size_t bytes) {
  if (scratch.bytes >= bytes) return {};
  scratch = {};
  constexpr auto kCacheLine = std::align_val_t{64};
  void* const memory = ::operator new(bytes, kCacheLine, std::nothrow);
  if (memory == nullptr)
    return Status::unavailable("out of memory: no " + std::to_string(bytes) + " bytes for a technique");
  const auto free = [](std::byte* at) { ::operator delete(at, kCacheLine); };
  scratch = {{static_cast<std::byte*>(memory), free}, bytes};
  return {};
}

void HostBuffers::leak_buffers() {
  for (FusionBuffer& buffer : buffers_) buffer.leak();
}

}  // namespace roundelay::execute
