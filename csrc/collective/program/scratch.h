// The working memory of a fabric's calls. It is kept and used again, because a fresh megabyte costs more than
// reducing it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace roundelay::collective {

// One thread at a time.
class ScratchPool {
 public:
  struct Block {
    std::shared_ptr<std::byte> memory;
    std::size_t bytes = 0;
  };
  // Allocates memory of any content. Null: there is none.
  using Allocate = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;

  ScratchPool() = default;
  ~ScratchPool() = default;
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // Takes other memory than the host's. Call it before the first acquire().
  void allocate_by(Allocate allocate) { allocate_ = std::move(allocate); }
  // Returns the smallest free block that is large enough, or a new one. Its content is anything. Throws
  // std::bad_alloc if memory has run out.
  Block acquire(std::size_t bytes);
  // Takes a block back for later calls.
  void release(Block block);
  // Keeps memory that the medium may still write to until the process ends.
  static void abandon(Block block);

 private:
  Allocate allocate_;  // empty: the host's memory
  std::vector<Block> free_;
};

}  // namespace roundelay::collective
