// Finds out whether a lane's fused operations repeat in the same sequence. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "wire/messages.h"

namespace roundelay::lock {

// A period is a sequence of operations that repeats. Its longest length bounds the memory and the cost of
// saw().
class ScheduleFinder {
 public:
  using Ids = std::vector<wire::CacheId>;  // the tensors of one operation
  static constexpr std::size_t kLongestPeriod = 256;
  // The bounds of periods_needed().
  static constexpr std::size_t kLeastPeriods = 3;
  static constexpr std::size_t kMostPeriods = 192;

  // Records the next operation.
  void saw(const Ids& tensors);
  // Records something that cannot repeat. No period contains it.
  void interrupted();
  // Returns the shortest period that came periods_needed() times up to now, or nothing. It begins with the
  // operation that comes next.
  [[nodiscard]] std::optional<std::vector<Ids>> period() const;
  // Records that a lock on a schedule of `period` operations ended after `positions` positions. If that was
  // soon, the next lock needs twice as many periods, so that ranks do not lock and unlock all the time.
  void unlocked(std::size_t period, std::uint64_t positions);

  // Returns how often a period has to come in a row until it counts.
  [[nodiscard]] std::size_t periods_needed() const { return needed_; }

 private:
  using Symbol = std::uint32_t;

  std::map<Ids, Symbol> symbols_;
  std::vector<const Ids*> operations_;  // indexed by symbol
  std::vector<Symbol> last_;            // a ring of the last kLongestPeriod operations
  std::uint64_t count_ = 0;             // operations since the last interruption
  // For each length of a period: how many operations in a row, up to the last one, equal the operation one
  // period before.
  std::vector<std::uint64_t> repeats_;
  std::size_t needed_ = kLeastPeriods;
};

}  // namespace roundelay::lock
