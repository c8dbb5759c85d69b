#include "collective/scratch.h"

#include <algorithm>
#include <utility>

#include "base/leak.h"

namespace roundelay::collective {

ScratchPool::Block ScratchPool::take(std::size_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes >= bytes && (best == free_.end() || it->bytes < best->bytes)) best = it;
  }
  if (best == free_.end()) {
    return Block{std::unique_ptr<std::byte[]>(new std::byte[bytes]), bytes};  // not zeroed
  }
  Block block = std::move(*best);
  free_.erase(best);
  return block;
}

void ScratchPool::give(Block block) { free_.push_back(std::move(block)); }

void ScratchPool::abandon(Block block) { leak(std::move(block)); }

}  // namespace roundelay::collective
