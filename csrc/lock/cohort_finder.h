// Finds the cohort of a lane: tensors of several threads of a rank that call blocking operations in loops.
// Each thread has one tensor in flight, so all tensors come equally often, but in another sequence each time.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "wire/messages.h"

namespace roundelay::lock {

class CohortFinder {
 public:
  using Ids = std::vector<wire::CacheId>;
  static constexpr std::size_t kMostTensors = 16;
  // The bounds of times_needed().
  static constexpr std::size_t kLeastTimes = 4;
  static constexpr std::size_t kMostTimes = 64;

  // Records the tensors of the next operation. `waiters`: so many threads of this rank have waited at once
  // since the last saw().
  void saw(const Ids& tensors, std::size_t waiters);
  // Records something that belongs to no cohort. The count begins anew.
  void interrupted();
  // Returns the tensors that came since the count began, ascending, if they came times_needed() times in the
  // mean, and each at least half as often. Nothing, too, if they are more than threads have waited at once: a
  // thread would have several of them, and wait for itself.
  [[nodiscard]] std::optional<Ids> cohort() const;
  // Returns whether the tensors that came since the count began may become a cohort.
  [[nodiscard]] bool may_come() const;
  // Records that a lock on a cohort ended after the cohort came so many times. If that was soon, the next one
  // has to come twice as often, else kLeastTimes.
  void unlocked(std::uint64_t times);

  // Returns how often the tensors of a cohort have to come until it counts.
  [[nodiscard]] std::size_t times_needed() const { return needed_; }

 private:
  std::map<wire::CacheId, std::size_t> times_;  // since the count began
  std::size_t all_ = 0;                         // the sum of times_
  std::size_t waiters_ = 0;                     // the most at once since the count began
  std::size_t needed_ = kLeastTimes;
};

}  // namespace roundelay::lock
