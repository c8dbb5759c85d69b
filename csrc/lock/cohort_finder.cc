#include "lock/cohort_finder.h"

#include <algorithm>

namespace roundelay::lock {
namespace {

// A lock lasted if the cohort came so many times as often as it had to before the lock.
constexpr std::uint64_t kLastingCohort = 16;

}  // namespace

void CohortFinder::saw(const Ids& tensors, std::size_t waiters) {
  // A tensor that comes more rarely than others is in no cohort. It must not hide one for longer than this.
  if (times_.size() > kMostTensors || all_ >= 2 * needed_ * times_.size()) interrupted();
  if (tensors.size() > kMostTensors) return interrupted();
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
  const bool early = all_ < kMostTensors;  // more threads may wait at once soon
  return waiters_ > 1 && (early || times_.size() <= std::min(waiters_, kMostTensors));
}

std::optional<CohortFinder::Ids> CohortFinder::cohort() const {
  const std::size_t tensors = times_.size();
  if (tensors < 2 || tensors > std::min(waiters_, kMostTensors) || all_ < needed_ * tensors)
    return std::nullopt;
  Ids ids;
  for (const auto& [id, times] : times_) {
    // Threads take turns at random, so that some may be behind.
    if (2 * times * tensors < all_) return std::nullopt;
    ids.push_back(id);
  }
  return ids;
}

void CohortFinder::unlocked(std::uint64_t times) {
  needed_ = times >= kLastingCohort * needed_ ? kLeastTimes : std::min(needed_ * 2, kMostTimes);
  interrupted();
}

}  // namespace roundelay::lock
