// Working memory of a fabric's calls: kept and reused, because a fresh megabyte costs more than reducing it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace roundelay::collective {

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

  // The smallest free block that is large enough, or a new one.
  Block take(std::size_t bytes);
  void give(Block block);
  // For memory that the medium may still write: stays allocated for the life of the process.
  static void abandon(Block block);

 private:
  std::vector<Block> free_;
};

}  // namespace roundelay::collective
