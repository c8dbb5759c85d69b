// The memory in which fused operations are packed: one for each lane and operation in flight, used again and
// again.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::fuse {

// One thread at a time.
class FusionBuffer {
 public:
  // What is larger than `keep_bytes` is given back as soon as an operation fits without it.
  explicit FusionBuffer(std::size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~FusionBuffer();
  FusionBuffer(const FusionBuffer&) = delete;
  FusionBuffer& operator=(const FusionBuffer&) = delete;
  FusionBuffer(FusionBuffer&& other) noexcept;
  FusionBuffer& operator=(FusionBuffer&& other) noexcept;

  // Room for `bytes`, aligned to a cache line, large buffers to a page. What was in the buffer is lost when
  // it has to grow. kUnavailable if there is no memory; the buffer is empty then and may be tried again.
  Status reserve(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  // Gives the memory up for good: a poisoned fabric may still write to it. The next reserve() gets other
  // memory.
  void leak();

 private:
  void release();

  std::size_t keep_bytes_;
  std::size_t capacity_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace roundelay::fuse
