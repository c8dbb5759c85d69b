#include "negotiate/cohort_finder.h"

#include <algorithm>

namespace roundelay::negotiate {
namespace {

constexpr std::uint64_t kLasting =
    16;  // a lock lasted if it ran so many times the repetitions that it needed

}  // namespace

void CohortFinder::saw(const Ids& tensors, std::size_t waiters) {
  // A tensor that comes more rarely than others is in no cohort. It must not hide one for longer than this.
  if (times_.size() > kMostTensors || all_ >= 2 * needed_ * times_.size()) interrupted();
  waiters_ = std::max(waiters_, waiters);
  for (const wire::CacheId id : tensors) ++times_[id];
  all_ += tensors.size();
}

void CohortFinder::interrupted() {
  times_.clear();
  all_ = 0;
  waiters_ = 0;
}

bool CohortFinder::may_come() const {
  return waiters_ > 1 && times_.size() <= std::min(waiters_, kMostTensors);
}

std::optional<CohortFinder::Ids> CohortFinder::cohort() const {
  if (!may_come() || times_.size() < 2 || all_ < needed_ * times_.size()) return std::nullopt;
  Ids ids;
  for (const auto& [id, times] : times_) {
    // Threads take turns at random, so that some may be ahead.
    if (2 * times * times_.size() <= all_ || times * times_.size() >= 2 * all_) return std::nullopt;
    ids.push_back(id);
  }
  return ids;
}

void CohortFinder::unlocked(std::uint64_t times) {
  needed_ = times >= kLasting * needed_ ? kLeastTimes : std::min(needed_ * 2, kMostTimes);
  interrupted();
}

}  // namespace roundelay::negotiate
