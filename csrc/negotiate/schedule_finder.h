// Finds out whether a lane's fused operations come in a sequence that repeats. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "wire/messages.h"

namespace roundelay::negotiate {

// Memory and the cost of one operation are bounded by the longest period.
class ScheduleFinder {
 public:
  using Ids = std::vector<wire::CacheId>;  // one operation's members
  static constexpr std::size_t kLongestPeriod = 256;
  static constexpr std::size_t kLeastPeriods = 3;
  static constexpr std::size_t kMostPeriods = 192;

  // The next operation of the stream.
  void saw(const Ids& members);
  // Something else came: no period goes across it.
  void interrupted();
  // The shortest period, if the stream's last operations were enough of it, as it goes on from here.
  [[nodiscard]] std::optional<std::vector<Ids>> period() const;
  // A lock on such a schedule ended after so many positions. One that did not last asks for twice the
  // evidence the next time, so that ranks do not lock and unlock all the time.
  void unlocked(std::size_t period, std::uint64_t positions);

  [[nodiscard]] std::size_t periods_needed() const { return needed_; }

 private:
  using Symbol = std::uint32_t;

  std::map<Ids, Symbol> symbols_;
  std::vector<const Ids*> operations_;  // by symbol
  std::vector<Symbol> last_;            // a ring of the last kLongestPeriod
  std::uint64_t count_ = 0;             // seen since the interruption
  std::vector<std::uint64_t> repeats_;  // by period: of how many operations up to the last one it is true
  std::size_t needed_ = kLeastPeriods;
};

}  // namespace roundelay::negotiate
