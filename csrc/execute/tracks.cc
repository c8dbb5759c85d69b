#include "execute/tracks.h"

#include <algorithm>
#include <utility>

#include "execute/operations/operations.h"

namespace roundelay::execute {

TrackFabrics one_track(std::unique_ptr<collective::Fabric> fabric) {
  TrackFabrics fabrics;
  fabrics.push_back(std::move(fabric));
  return fabrics;
}

Tracks::Tracks(TrackFabrics fabrics, const AbortToken& abort, const LaneOptions& options) {
  LaneOptions own = options;
  own.calls_at_once = fabrics.size();
  for (auto& fabric : fabrics) {
    all_.push_back(std::make_unique<Track>(std::move(fabric), abort, own));
    own.gpu.reset();
  }
}

std::vector<collective::Waker*> Tracks::wakers() const {
  std::vector<collective::Waker*> found;
  for (const auto& track : all_) {
    collective::Waker* const waker = track->executor.fabric().capabilities().waker;
    if (waker != nullptr) found.push_back(waker);
  }
  return found;
}

std::vector<std::shared_ptr<const collective::FabricCounters>> Tracks::counters() const {
  std::vector<std::shared_ptr<const collective::FabricCounters>> found;
  for (const auto& track : all_) {
    if (auto counters = track->executor.fabric().capabilities().counters) {
      found.push_back(std::move(counters));
    }
    if (GpuBuffers* const gpu = track->executor.gpu()) found.push_back(gpu->fabric().capabilities().counters);
  }
  return found;
}

Status Tracks::prepare(Batch& batch, bool timed) {
  batch.alone = all_.size() == 1 || !goes_over_levels(batch, first().fabric().group().size());
  batch.track = batch.alone ? 0 : std::exchange(turn_, (turn_ + 1) % all_.size());
  return all_[batch.track]->executor.prepare(batch, timed);
}

bool Tracks::may_start(const Batch& batch) const {
  if (batch.alone) return idle();
  const std::unique_ptr<Batch>& oldest = all_.front()->running;
  return !all_[batch.track]->running && (!oldest || !oldest->alone);
}

Status Tracks::start(std::unique_ptr<Batch> batch) {
  Track& track = *all_[batch->track];
  track.running = std::move(batch);
  return track.executor.start(*track.running);
}

bool Tracks::idle() const {
  return std::none_of(all_.begin(), all_.end(), [](const auto& track) { return track->running != nullptr; });
}

Nap Tracks::nap(Backoff& backoff) const {
  Nap shortest;
  std::size_t naps = 0;
  for (const auto& track : all_) {
    if (!track->running) continue;
    const Nap nap = track->running->idle(backoff);
    if (naps++ == 0 || nap.length() < shortest.length()) shortest = nap;
  }
  // A peer that moves one batch does not end a sleep in the call of another.
  return naps > 1 ? shortest.at_most(Backoff::kLongest) : shortest;
}

Batches Tracks::take_running() {
  Batches taken;
  for (const auto& track : all_) {
    if (track->running) taken.push_back(std::move(track->running));
  }
  std::sort(taken.begin(), taken.end(),
            [](const auto& one, const auto& other) { return one->started < other->started; });
  return taken;
}

void Tracks::close() {
  for (const auto& track : all_) track->executor.close();
}

}  // namespace roundelay::execute
