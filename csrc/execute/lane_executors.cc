#include "execute/lane_executors.h"

#include <algorithm>
#include <utility>

#include "execute/operations/operations.h"

namespace roundelay::execute {

LaneFabrics one_fabric(std::unique_ptr<collective::Fabric> fabric) {
  LaneFabrics fabrics;
  fabrics.all.push_back(std::move(fabric));
  return fabrics;
}

LaneExecutors::LaneExecutors(std::vector<std::unique_ptr<collective::Fabric>> fabrics,
                             const AbortToken& abort, const LaneOptions& options) {
  LaneOptions own = options;
  own.calls_at_once = fabrics.size();
  for (auto& fabric : fabrics) {
    all_.push_back(std::make_unique<LaneExecutor>(std::move(fabric), abort, own));
    own.gpu.reset();
  }
}

std::vector<collective::Waker*> LaneExecutors::wakers() const {
  std::vector<collective::Waker*> found;
  for (const auto& executor : all_) {
    collective::Waker* const waker = executor->batches.fabric().capabilities().waker;
    if (waker != nullptr) found.push_back(waker);
  }
  return found;
}

std::vector<std::shared_ptr<const collective::FabricCounters>> LaneExecutors::counters() const {
  std::vector<std::shared_ptr<const collective::FabricCounters>> found;
  for (const auto& executor : all_) {
    if (auto counters = executor->batches.fabric().capabilities().counters) {
      found.push_back(std::move(counters));
    }
    if (GpuBuffers* const gpu = executor->batches.gpu())
      found.push_back(gpu->fabric().capabilities().counters);
  }
  return found;
}

Status LaneExecutors::prepare(Batch& batch, bool timed) {
  batch.alone = all_.size() == 1 || !goes_over_levels(batch, first().fabric().group().size());
  batch.executor = batch.alone ? 0 : std::exchange(next_, (next_ + 1) % all_.size());
  return all_[batch.executor]->batches.prepare(batch, timed);
}

bool LaneExecutors::may_start(const Batch& batch) const {
  if (batch.alone) return idle();
  const std::unique_ptr<Batch>& oldest = all_.front()->running;
  return !all_[batch.executor]->running && (!oldest || !oldest->alone);
}

Status LaneExecutors::start(std::unique_ptr<Batch> batch) {
  LaneExecutor& executor = *all_[batch->executor];
  executor.running = std::move(batch);
  return executor.batches.start(*executor.running);
}

bool LaneExecutors::idle() const {
  return std::none_of(all_.begin(), all_.end(),
                      [](const auto& executor) { return executor->running != nullptr; });
}

Nap LaneExecutors::nap(Backoff& backoff) const {
  Nap shortest;
  std::size_t naps = 0;
  for (const auto& executor : all_) {
    if (!executor->running) continue;
    const Nap nap = executor->running->idle(backoff);
    if (naps++ == 0 || nap.length() < shortest.length()) shortest = nap;
  }
  // A peer that moves one batch does not end a sleep in the call of another.
  return naps > 1 ? shortest.at_most(Backoff::kLongest) : shortest;
}

Batches LaneExecutors::take_running() {
  Batches taken;
  for (const auto& executor : all_) {
    if (executor->running) taken.push_back(std::move(executor->running));
  }
  std::sort(taken.begin(), taken.end(),
            [](const auto& one, const auto& other) { return one->started < other->started; });
  return taken;
}

void LaneExecutors::close() {
  for (const auto& executor : all_) executor->batches.close();
}

}  // namespace roundelay::execute
