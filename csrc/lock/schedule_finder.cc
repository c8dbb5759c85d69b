#include "lock/schedule_finder.h"

#include <algorithm>

namespace roundelay::lock {
namespace {

constexpr std::size_t kMostSymbols = 4 * ScheduleFinder::kLongestPeriod;
constexpr std::uint64_t kLasting = 8;  // a lock lasted if it ran so many times the periods that it needed

}  // namespace

void ScheduleFinder::saw(const Ids& tensors) {
  if (symbols_.size() >= kMostSymbols) interrupted();
  const auto [found, is_new] = symbols_.try_emplace(tensors, static_cast<Symbol>(operations_.size()));
  if (is_new) operations_.push_back(&found->first);
  last_.resize(kLongestPeriod);
  repeats_.resize(kLongestPeriod + 1);
  const std::size_t known = std::min<std::uint64_t>(count_, kLongestPeriod);
  for (std::size_t period = 1; period <= known; ++period) {
    const bool same = last_[(count_ - period) % kLongestPeriod] == found->second;
    repeats_[period] = same ? repeats_[period] + 1 : 0;
  }
  last_[count_++ % kLongestPeriod] = found->second;
}

void ScheduleFinder::interrupted() {
  if (count_ == 0) return;
  symbols_.clear();
  operations_.clear();
  repeats_.clear();
  count_ = 0;
}

std::optional<std::vector<ScheduleFinder::Ids>> ScheduleFinder::period() const {
  for (std::size_t period = 1; period < repeats_.size(); ++period) {
    if (repeats_[period] < (needed_ - 1) * period) continue;
    std::vector<Ids> operations;
    for (std::uint64_t i = count_ - period; i < count_; ++i) {
      operations.push_back(*operations_[last_[i % kLongestPeriod]]);
    }
    return operations;
  }
  return std::nullopt;
}

void ScheduleFinder::unlocked(std::size_t period, std::uint64_t positions) {
  const bool lasted = positions >= kLasting * needed_ * period;
  needed_ = lasted ? std::max(needed_ / 2, kLeastPeriods) : std::min(needed_ * 2, kMostPeriods);
  interrupted();
}

}  // namespace roundelay::lock
