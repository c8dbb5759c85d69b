#include "collective/staged/pinned.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/leak.h"
#include "collective/backoff.h"

namespace roundelay::collective::staged {
namespace {

constexpr std::size_t kLeast = std::size_t{64} << 10;  // pinning costs more than the bytes
constexpr Duration kPatience = std::chrono::milliseconds(250);

}  // namespace

PinnedBlock::~PinnedBlock() {
  const Deadline end = Deadline::after(kPatience);
  Backoff backoff;
  Result<bool> over = free();
  for (; over.ok() && !*over && !end.passed(); over = free()) backoff.pause();
  if (!over.ok() || !*over) abandon();
}

Result<bool> PinnedBlock::free() const {
  if (!last_use_) return true;
  return last_use_->reached();
}

Status PinnedBlock::reserve(GpuRuntime& runtime, std::size_t least, std::size_t fresh, std::size_t most) {
  if (bytes_ >= least && bytes_ <= most) return {};
  memory_.reset();
  bytes_ = 0;
  auto memory = runtime.allocate_pinned(fresh);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  bytes_ = fresh;
  return {};
}

void PinnedBlock::abandon() {
  if (memory_) leak(std::exchange(memory_, nullptr));
  bytes_ = 0;
  last_use_.reset();
}

Result<PinnedBlock*> PinnedBlocks::take(std::size_t bytes) {
  const bool piece = bytes <= piece_bytes_;
  PinnedBlock& block = piece ? pieces_[taken_ % kPieces] : large_;
  const Result<bool> free = block.free();
  if (!free.ok()) return free.status();
  if (!*free) return nullptr;
  if (piece) {
    const std::size_t fresh = std::min(std::bit_ceil(std::max(bytes, kLeast)), piece_bytes_);
    ROUNDELAY_RETURN_IF_ERROR(block.reserve(runtime_, bytes, fresh, piece_bytes_));
    ++taken_;
  } else {
    ROUNDELAY_RETURN_IF_ERROR(block.reserve(runtime_, bytes, bytes, 2 * bytes));
  }
  return &block;
}

}  // namespace roundelay::collective::staged
