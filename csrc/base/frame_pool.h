// Memory for the frames of coroutines. Released frames serve the next ones of their size, so that operations
// that repeat allocate nothing.
#pragma once

#include <cstddef>
#include <new>

namespace roundelay {

// One thread at a time. It outlives its frames.
class FramePool {
 public:
  FramePool() = default;
  ~FramePool() {
    while (free_ != nullptr) {
      Block* const block = free_;
      free_ = block->next;
      ::operator delete(block);
    }
  }
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  // Returns memory that is aligned for any object. Throws std::bad_alloc.
  void* allocate(std::size_t bytes) {
    for (Block** link = &free_; *link != nullptr; link = &(*link)->next) {
      Block* const block = *link;
      if (block->bytes != bytes) continue;
      *link = block->next;
      return block + 1;
    }
    return new (::operator new(sizeof(Block) + bytes)) Block{this, nullptr, bytes} + 1;
  }
  // Gives memory back to the pool that it came from.
  static void release(void* frame) noexcept {
    Block* const block = static_cast<Block*>(frame) - 1;
    block->next = block->pool->free_;
    block->pool->free_ = block;
  }

 private:
  struct alignas(std::max_align_t) Block {
    FramePool* pool;
    Block* next;
    std::size_t bytes;
  };

  Block* free_ = nullptr;  // a few: as many as frames were in use at once, of each size
};

}  // namespace roundelay
