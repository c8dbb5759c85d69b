#include "runtime/lane/device_buffers.h"

#include <cstring>

namespace roundelay::runtime {

HostBuffers::HostBuffers(collective::Fabric& fabric, FramePool& frames, std::size_t keep_bytes)
    : DeviceBuffers(fabric, frames),
      buffers_{fuse::FusionBuffer(keep_bytes), fuse::FusionBuffer(keep_bytes)} {}

Status HostBuffers::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return {};
}

Result<std::byte*> HostBuffers::fusion_buffer(std::size_t bytes) {
  fuse::FusionBuffer& buffer = buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  ROUNDELAY_RETURN_IF_ERROR(buffer.reserve(bytes));
  return buffer.data();
}

Status HostBuffers::pack(std::span<const fuse::PackItem> items, std::byte* buffer) {
  fuse::pack(items, buffer);
  return {};
}

Status HostBuffers::unpack(std::span<const fuse::UnpackItem> items, const std::byte* buffer) {
  fuse::unpack(items, buffer);
  return {};
}

Result<std::byte*> HostBuffers::result(const Piece& piece, const std::vector<std::int64_t>& shape) {
  const auto memory = piece.entry->results->allocate(piece.part, shape);
  if (!memory.ok()) return memory.status();
  return memory->data;
}

void HostBuffers::leak_buffers() {
  for (fuse::FusionBuffer& buffer : buffers_) buffer.leak();
}

}  // namespace roundelay::runtime
