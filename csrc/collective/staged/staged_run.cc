#include "collective/staged/staged_run.h"

#include <utility>

namespace roundelay::collective::staged {

StagedRun::StagedRun(StagedResources& resources, const Call& call)
    : resources_(resources),
      call_(call),
      stream_(options_of(call).stream),
      plan_(call, resources.cpu.group().index, resources.piece_bytes) {}

StagedRun::~StagedRun() {
  if (!crossing_) return;
  crossing_.reset();
  if (PinnedBlock* const block = started_.front().block; block != nullptr && resources_.cpu.poisoned()) {
    block->abandon();
  }
}

Result<bool> StagedRun::advance() {
  std::uint64_t before = 0;
  do {
    before = moves_;
    ROUNDELAY_RETURN_IF_ERROR(fetch_all());
    ROUNDELAY_RETURN_IF_ERROR(cross());
  } while (moves_ != before);
  return over_ == plan_.count();
}

Status StagedRun::interrupted(CallWatch& watch) const {
  return crossing_ ? Status() : watch.interrupted(-1, "waited for its GPU until its deadline");
}

// Nothing wakes a sleeper when the device is done with a copy, and the next piece may wait for one. So the
// sleep is short.
Nap StagedRun::idle(Backoff& backoff) {
  if (std::exchange(moves_at_idle_, moves_) != moves_) backoff.reset();
  return crossing_ ? crossing_->idle(backoff).at_most(Backoff::kLongest) : backoff.next();
}

Status StagedRun::fetch_all() {
  while (begun_ < plan_.count() && begun_ < over_ + PinnedBlocks::kPieces) {
    StartedStep started{plan_[begun_], nullptr, nullptr};
    if (started.step.pinned > 0) {
      const Result<PinnedBlock*> block = resources_.blocks.acquire(started.step.pinned);
      if (!block.ok()) return block.status();
      if (*block == nullptr) return {};
      started.block = *block;
    }
    ROUNDELAY_RETURN_IF_ERROR(fetch(started));
    started_.push_back(std::move(started));
    ++begun_;
    ++moves_;
  }
  return {};
}

// A barrier has no bytes, but it too waits for the work that is in the stream before it.
Status StagedRun::fetch(StartedStep& started) {
  const StagedStep& step = started.step;
  const bool bytes = step.from != nullptr && step.given.bytes > 0;
  if (bytes) {
    ROUNDELAY_RETURN_IF_ERROR(resources_.runtime.copy(
        resources_.device, started.block->data() + step.given.offset, step.from, step.given.bytes, stream_));
  } else if (operation_of(call_) != Operation::kBarrier || stream_ == nullptr) {
    return {};
  }
  auto mark = resources_.runtime.mark(resources_.device, stream_);
  if (!mark.ok()) return mark.status();
  started.done = std::move(*mark);
  if (started.block != nullptr) started.block->busy_until(started.done);
  return {};
}

Status StagedRun::cross() {
  while (!started_.empty()) {
    const StartedStep& first = started_.front();
    if (!crossing_) {
      const Result<bool> begun = begin(first);
      if (!begun.ok()) return begun.status();
      if (!*begun) return {};
    }
    const Result<bool> over = crossing_->test();
    if (!over.ok()) return over.status();
    if (!*over) return device_works();
    crossing_.reset();
    ROUNDELAY_RETURN_IF_ERROR(send_up(first));
    started_.pop_front();
    ++over_;
    ++moves_;
  }
  return {};
}

// Peers may come late, or never. A failure of the device must not wait for them.
Status StagedRun::device_works() const {
  const GpuEventPtr& last = started_.back().done;
  return last ? last->reached().status() : Status{};
}

Result<bool> StagedRun::begin(const StartedStep& started) {
  if (started.done) {
    Result<bool> reached = started.done->reached();
    if (!reached.ok() || !*reached) return reached;
  }
  std::byte* const pinned = started.block == nullptr ? nullptr : started.block->data();
  auto call = resources_.cpu.start(plan_.on_host(started.step, pinned));
  if (!call.ok()) return call.status();
  crossing_ = std::move(call).value();
  ++moves_;
  return true;
}

Status StagedRun::send_up(const StartedStep& started) {
  const StagedStep& step = started.step;
  if (step.to == nullptr || step.result.bytes == 0) return {};
  ROUNDELAY_RETURN_IF_ERROR(resources_.runtime.copy(
      resources_.device, step.to, started.block->data() + step.result.offset, step.result.bytes, stream_));
  auto up = resources_.runtime.mark(resources_.device, stream_);
  if (!up.ok()) return up.status();
  started.block->busy_until(std::move(*up));
  return {};
}

}  // namespace roundelay::collective::staged
