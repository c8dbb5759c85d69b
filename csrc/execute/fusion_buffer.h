// The memory into which a fused operation is packed. A lane has one for each operation in flight and uses it
// again and again.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::execute {

// Owns the memory. One thread at a time uses it.
class FusionBuffer {
 public:
  // Memory of more than `keep_bytes` goes back to the system when the next operation needs no more than that.
  explicit FusionBuffer(std::size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~FusionBuffer();
  FusionBuffer(const FusionBuffer&) = delete;
  FusionBuffer& operator=(const FusionBuffer&) = delete;
  FusionBuffer(FusionBuffer&& other) noexcept;
  FusionBuffer& operator=(FusionBuffer&& other) noexcept;

  // Makes room for `bytes`, aligned to a cache line, or to a page if there are many. The content is lost if
  // the memory changes. kUnavailable: no memory; the buffer is empty then, and a later call may succeed.
  Status reserve(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  // Leaks the memory on purpose: a poisoned fabric (collective/fabric.h) may still write to it. The next
  // reserve() gets other memory.
  void leak();

 private:
  void release();

  std::size_t keep_bytes_;
  std::size_t capacity_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace roundelay::execute
