// Pinned host memory, which the steps of calls use in turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/gpu_runtime.h"

namespace roundelay::collective::staged {

// Memory for one step at a time. One thread at a time.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  // Waits a short time for the device, and leaks memory that it still uses.
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  // Returns whether the device is done with the memory. Errors: kAborted (the device failed).
  [[nodiscard]] Result<bool> free() const;
  // Makes free() false until the device has reached `event`.
  void busy_until(GpuEventPtr event) { last_use_ = std::move(event); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Allocate other memory, of any content. Call them when the block is free. exchange() gives the old memory
  // back, which waits for the whole device, also for kernels that wait for their peers. grow() keeps it until
  // the end. Errors: kUnavailable (no memory).
  [[nodiscard]] Status exchange(GpuRuntime& runtime, std::size_t bytes);
  [[nodiscard]] Status grow(GpuRuntime& runtime, std::size_t bytes);
  // Leaks the memory, because the medium may write to it for ever.
  void abandon();

 private:
  GpuMemory memory_;
  std::vector<GpuMemory> outgrown_;
  std::size_t bytes_ = 0;
  GpuEventPtr last_use_;
};

// The blocks of one member. One thread at a time.
class PinnedBlocks {
 public:
  // The number of blocks that serve the steps of up to `piece_bytes`, in turn. They double as they grow.
  // Larger steps share one other block.
  static constexpr std::uint64_t kPieces = 3;

  PinnedBlocks(GpuRuntime& runtime, std::size_t piece_bytes) : runtime_(runtime), piece_bytes_(piece_bytes) {}

  // Returns the next block, with at least `bytes` bytes. Null: the device still uses it. Errors: kUnavailable
  // (no memory), kAborted (the device failed).
  [[nodiscard]] Result<PinnedBlock*> acquire(std::size_t bytes);

 private:
  GpuRuntime& runtime_;
  const std::size_t piece_bytes_;
  std::array<PinnedBlock, kPieces> pieces_;
  std::uint64_t taken_ = 0;  // counts the pieces that were taken
  PinnedBlock large_;
};

}  // namespace roundelay::collective::staged
