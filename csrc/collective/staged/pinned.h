// Pinned memory that the steps of calls use one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/gpu_runtime.h"

namespace roundelay::collective::staged {

// One thread at a time.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  // Waits for the device, but not for long: memory that it still uses is given up for good.
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  // Whether the device is through with it.
  [[nodiscard]] Result<bool> free() const;
  void busy_until(GpuEventPtr event) { last_use_ = std::move(event); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Other memory, of no content, where it is free; what it had goes back, or is kept to the end. To give
  // pinned memory back waits for the whole device, also for kernels that wait for their peers.
  [[nodiscard]] Status exchange(GpuRuntime& runtime, std::size_t bytes);
  [[nodiscard]] Status grow(GpuRuntime& runtime, std::size_t bytes);
  // Somebody may write to it for ever.
  void abandon();

 private:
  GpuMemory memory_;
  std::vector<GpuMemory> outgrown_;
  std::size_t bytes_ = 0;
  GpuEventPtr last_use_;
};

// One thread at a time.
class PinnedBlocks {
 public:
  // Steps of up to `piece_bytes` take these in turn, which double as they grow; larger ones have one of their
  // own.
  static constexpr std::uint64_t kPieces = 3;

  PinnedBlocks(GpuRuntime& runtime, std::size_t piece_bytes) : runtime_(runtime), piece_bytes_(piece_bytes) {}

  // Null: the device still uses the one whose turn it is.
  [[nodiscard]] Result<PinnedBlock*> take(std::size_t bytes);

 private:
  GpuRuntime& runtime_;
  const std::size_t piece_bytes_;
  std::array<PinnedBlock, kPieces> pieces_;
  std::uint64_t taken_ = 0;  // of the pieces
  PinnedBlock large_;
};

}  // namespace roundelay::collective::staged
