// The working memory of a fabric's calls. It is kept and used again, because a fresh megabyte costs more than
// reducing it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace roundelay::collective {

// One thread at a time.
class ScratchPool {
 public:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };

  ScratchPool() = default;
  ~ScratchPool() = default;
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // Returns the smallest free block that is large enough, or a new one. Its content is anything.
  Block take(std::size_t bytes);
  // Takes a block back for later calls.
  void give(Block block);
  // Keeps memory that the medium may still write to until the process ends.
  static void abandon(Block block);

 private:
  std::vector<Block> free_;
};

}  // namespace roundelay::collective
