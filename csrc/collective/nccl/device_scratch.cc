#include "collective/nccl/device_scratch.h"

#include <utility>

#include "base/leak.h"

namespace roundelay::collective::nccl {

bool DeviceScratch::Block::idle() const {
  if (taken || !last_use) return !taken;
  const Result<bool> reached = last_use->reached();
  return reached.ok() && *reached;
}

DeviceScratch::~DeviceScratch() {
  outgrown_.push_back(std::move(block_));
  for (Block& block : outgrown_) {
    if (!block.idle()) leak(std::move(block.memory));
  }
}

Result<std::byte*> DeviceScratch::acquire(std::size_t bytes, GpuStream stream) {
  std::erase_if(outgrown_, [](const Block& block) { return block.idle(); });
  if (bytes > block_.bytes) {
    Result<GpuMemory> memory = runtime_.allocate(device_, bytes);
    if (!memory.ok()) return memory.status();
    outgrown_.push_back(std::exchange(block_, Block()));
    block_.memory = std::move(memory).value();
    block_.bytes = bytes;
  }
  if (block_.last_use) ROUNDELAY_RETURN_IF_ERROR(block_.last_use->hold_back(stream));
  block_.taken = true;
  return block_.memory.get();
}

Status DeviceScratch::release(GpuStream stream) {
  Result<GpuEventPtr> mark = runtime_.mark(device_, stream);
  if (!mark.ok()) return mark.status();
  block_.last_use = std::move(mark).value();
  block_.taken = false;
  return {};
}

}  // namespace roundelay::collective::nccl
