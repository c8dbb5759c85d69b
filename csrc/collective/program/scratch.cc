#include "collective/program/scratch.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/leak.h"

namespace roundelay::collective {

ScratchPool::Block ScratchPool::acquire(std::size_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes >= bytes && (best == free_.end() || it->bytes < best->bytes)) best = it;
  }
  if (best == free_.end()) {
    if (!allocate_) {
      return {{new std::byte[bytes], std::default_delete<std::byte[]>()}, bytes};  // not zeroed
    }
    Block block{allocate_(bytes), bytes};
    if (block.memory == nullptr && bytes > 0) throw std::bad_alloc();
    return block;
  }
  Block block = std::move(*best);
  free_.erase(best);
  return block;
}

void ScratchPool::release(Block block) { free_.push_back(std::move(block)); }

void ScratchPool::abandon(Block block) { leak(std::move(block)); }

}  // namespace roundelay::collective
