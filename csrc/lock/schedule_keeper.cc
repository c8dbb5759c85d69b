#include "lock/schedule_keeper.h"

#include <algorithm>
#include <utility>

namespace roundelay::lock {

void ScheduleKeeper::begin(std::size_t members) {
  ++number_;
  counts_.assign(members, std::nullopt);
  frozen_ = 0;
  freeze_ordered_ = false;
}

bool ScheduleKeeper::on_frozen(std::size_t member, std::uint64_t count, TimePoint now) {
  if (counts_[member]) return false;
  counts_[member] = count;
  if (frozen_++ == 0) asked_ = now;
  return true;
}

bool ScheduleKeeper::take_freeze() {
  if (frozen_ == 0 || frozen_ == counts_.size() || freeze_ordered_) return false;
  freeze_ordered_ = true;
  return true;
}

std::optional<std::uint64_t> ScheduleKeeper::take_unlock() {
  if (counts_.empty() || frozen_ < counts_.size()) return std::nullopt;
  const std::uint64_t least = **std::min_element(counts_.begin(), counts_.end());
  counts_.clear();
  frozen_ = 0;
  return least;
}

std::vector<int> ScheduleKeeper::silent() const {
  std::vector<int> members;
  for (std::size_t member = 0; frozen_ > 0 && member < counts_.size(); ++member) {
    if (!counts_[member]) members.push_back(static_cast<int>(member));
  }
  return members;
}

}  // namespace roundelay::lock
