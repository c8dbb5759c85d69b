#include "collective/staged/pinned.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/backoff.h"
#include "base/leak.h"

namespace roundelay::collective::staged {
namespace {

constexpr std::size_t kLeast = std::size_t{64}
                               << 10;  // to pin less would not save much: pinning costs more than the bytes
constexpr Duration kTimeout = std::chrono::milliseconds(250);

}  // namespace

PinnedBlock::~PinnedBlock() {
  const Deadline end = Deadline::after(kTimeout);
  Backoff backoff;
  Result<bool> over = free();
  for (; over.ok() && !*over && !end.passed(); over = free()) backoff.pause();
  if (!over.ok() || !*over) abandon();
}

Result<bool> PinnedBlock::free() const {
  if (!last_use_) return true;
  return last_use_->reached();
}

Status PinnedBlock::exchange(GpuRuntime& runtime, std::size_t bytes) {
  memory_.reset();
  bytes_ = 0;
  return grow(runtime, bytes);
}

Status PinnedBlock::grow(GpuRuntime& runtime, std::size_t bytes) {
  auto memory = runtime.allocate_pinned(bytes);
  if (!memory.ok()) return memory.status();
  if (memory_) outgrown_.push_back(std::move(memory_));
  memory_ = std::move(*memory);
  bytes_ = bytes;
  return {};
}

void PinnedBlock::abandon() {
  if (memory_) leak(std::exchange(memory_, nullptr));
  leak(std::exchange(outgrown_, {}));
  bytes_ = 0;
  last_use_.reset();
}

Result<PinnedBlock*> PinnedBlocks::acquire(std::size_t bytes) {
  const bool piece = bytes <= piece_bytes_;
  PinnedBlock& block = piece ? pieces_[taken_ % kPieces] : large_;
  const Result<bool> free = block.free();
  if (!free.ok()) return free.status();
  if (!*free) return nullptr;
  if (!piece && (block.bytes() < bytes || block.bytes() > 2 * bytes)) {
    ROUNDELAY_RETURN_IF_ERROR(block.exchange(runtime_, bytes));
  } else if (block.bytes() < bytes) {
    const std::size_t larger = std::min(std::bit_ceil(std::max(bytes, kLeast)), piece_bytes_);
    ROUNDELAY_RETURN_IF_ERROR(block.grow(runtime_, larger));
  }
  if (piece) ++taken_;
  return &block;
}

}  // namespace roundelay::collective::staged
