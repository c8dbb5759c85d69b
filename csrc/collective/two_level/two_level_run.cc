#include "collective/two_level/two_level_run.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace roundelay::collective::two_level {

TwoLevelRun::TwoLevelRun(const TwoLevelResources& resources, const Call& call)
    : resources_(resources),
      call_(std::get<AllreduceCall>(call)),
      chunks_(call_.buffer.bytes, size_of(call_.dtype), resources.inner.group().size(),
              resources.cut.shard_bytes),
      scales_(scales_of_levels(call_, resources.inner.group().size())),
      order_(chunks_.count(), resources.cut.most_across) {}

Result<bool> TwoLevelRun::advance() {
  std::uint64_t before = 0;
  do {
    before = moves_;
    ROUNDELAY_RETURN_IF_ERROR(inside());
    ROUNDELAY_RETURN_IF_ERROR(between());
  } while (moves_ != before);
  return order_.over();
}

Status TwoLevelRun::inside() {
  while (true) {
    if (!step_) ROUNDELAY_RETURN_IF_ERROR(start_step());
    if (!step_) return {};
    const Result<bool> done = step_->test();
    if (!done.ok()) return done.status();
    if (!*done) return {};
    if (order_.scatters_next()) ++scattered_;
    order_.take();
    step_.reset();
    tell(0, inside_since_);
    ++moves_;
  }
}

Status TwoLevelRun::start_step() {
  if (order_.over()) return {};
  const std::uint64_t chunk = order_.next();
  if (!order_.scatters_next() && chunk >= crossed_) return {};
  auto started = resources_.inner.start(order_.scatters_next() ? scatter(chunk) : gather(chunk));
  if (!started.ok()) return started.status();
  step_ = std::move(started).value();
  if (call_.observer != nullptr) inside_since_ = steady_now();
  return {};
}

Status TwoLevelRun::between() {
  while (crossed_ + crossing_.size() < scattered_ && crossing_.size() < resources_.cut.most_across) {
    ROUNDELAY_RETURN_IF_ERROR(start_crossing());
  }
  for (std::unique_ptr<Pending>& pending : crossing_) {
    if (!pending) continue;
    const Result<bool> done = pending->test();
    if (!done.ok()) return done.status();
    if (*done) pending.reset();
  }
  while (!crossing_.empty() && !crossing_.front()) {
    crossing_.pop_front();
    if (crossing_.empty()) tell(1, between_since_);
    ++crossed_;
    ++moves_;
  }
  return {};
}

Status TwoLevelRun::start_crossing() {
  auto started = resources_.outer.start(cross(crossed_ + crossing_.size()));
  if (!started.ok()) return started.status();
  if (call_.observer != nullptr && crossing_.empty()) between_since_ = steady_now();
  crossing_.push_back(std::move(started).value());
  return {};
}

void TwoLevelRun::tell(std::size_t level, TimePoint since) const {
  if (call_.observer != nullptr) call_.observer->busy(level, since, steady_now());
}

ByteRange TwoLevelRun::own_shard(std::uint64_t chunk) const {
  const std::vector<std::size_t> shards = chunks_.shards(chunk);
  const auto own = shards.begin() + resources_.inner.group().index;
  return {chunks_[chunk].offset + std::accumulate(shards.begin(), own, std::size_t{0}), *own};
}

CallOptions TwoLevelRun::options() const {
  return {.absent = {}, .stream = call_.stream, .deadline = call_.deadline, .abort = call_.abort};
}

Reduction TwoLevelRun::reduction(Scale prescale, Scale scale) const {
  return {.dtype = call_.dtype, .reduce_op = call_.reduce_op, .prescale = prescale, .scale = scale};
}

ByteSpan TwoLevelRun::bytes_at(ByteRange range) const {
  return {call_.buffer.data() + range.offset, range.bytes};
}

Call TwoLevelRun::scatter(std::uint64_t chunk) const {
  return ReducescatterCall{options(),
                           reduction(call_.prescale, scales_.inside),
                           bytes_at(chunks_[chunk]).data(),
                           bytes_at(own_shard(chunk)),
                           chunks_.shards(chunk),
                           call_.buffer.region};
}

Call TwoLevelRun::cross(std::uint64_t chunk) const {
  const ByteRange own = own_shard(chunk);
  return AllreduceCall{options(),
                       reduction({}, scales_.between),
                       {call_.buffer.base, call_.buffer.offset + own.offset, own.bytes, nullptr}};
}

Call TwoLevelRun::gather(std::uint64_t chunk) const {
  return AllgatherCall{options(), bytes_at(own_shard(chunk)).data(), bytes_at(chunks_[chunk]),
                       chunks_.shards(chunk), call_.buffer.region};
}

int TwoLevelRun::in_group(const Fabric& fabric, int member) const {
  const int rank = fabric.group().ranks[static_cast<std::size_t>(member)];
  return static_cast<int>(
      std::lower_bound(resources_.group.ranks.begin(), resources_.group.ranks.end(), rank) -
      resources_.group.ranks.begin());
}

int TwoLevelRun::waiting_for() const {
  const int inside = step_ ? step_->waiting_for() : -1;
  if (inside >= 0) return in_group(resources_.inner, inside);
  for (const std::unique_ptr<Pending>& pending : crossing_) {
    const int between = pending ? pending->waiting_for() : -1;
    if (between >= 0) return in_group(resources_.outer, between);
  }
  return -1;
}

bool TwoLevelRun::crowded() const {
  if (step_ && step_->crowded()) return true;
  return !crossing_.empty() && crossing_.front()->crowded();
}

// A peer on this node ends a sleep in the inner fabric. Peers on other nodes cannot, so that the sleep is
// short while an allreduce with them is in progress.
Nap TwoLevelRun::idle(Backoff& backoff) {
  if (std::exchange(moves_at_idle_, moves_) != moves_) backoff.reset();
  if (!step_) return crossing_.empty() ? Nap() : crossing_.front()->idle(backoff);
  const Nap nap = step_->idle(backoff);
  return crossing_.empty() ? nap : nap.at_most(Backoff::kLongest);
}

}  // namespace roundelay::collective::two_level
