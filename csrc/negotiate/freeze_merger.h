// Merges for a leader (report_tree.h) how many positions the members below it have announced when they freeze
// under a schedule lock. Pure.
//
// The first member to freeze is heard by the coordinator at once: only then have the others to freeze.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

class FreezeMerger {
 public:
  explicit FreezeMerger(std::size_t reporters) : reporters_(reporters) {}

  // Begins a lock.
  void begin() { *this = FreezeMerger(reporters_); }
  // All members have to freeze.
  void on_freeze() { ordered_ = true; }

  // Takes a report of a member that freezes. `for_all`: it is that of a reporter, not of a member below one.
  // Returns true if the report goes on as it came.
  bool take(const wire::MemberReport& said, bool for_all, TimePoint now);
  // Returns the report of all, `member` and those below it, once: when all have frozen.
  std::optional<wire::MemberReport> take_all(LaneId lane, int member);
  // Returns what was kept back too long: it goes on as it came, and so does what follows.
  std::vector<wire::MemberReport> take_overdue(TimePoint now, Duration patience);
  // Returns the time at which something is kept back too long.
  [[nodiscard]] Deadline next_due(Duration patience) const;

 private:
  std::size_t reporters_;
  std::vector<int> heard_;                // the reporters that have frozen
  std::vector<wire::MemberReport> kept_;  // not sent on yet
  std::uint64_t least_ = 0, last_order_ = 0;
  TimePoint since_{};     // the first of kept_ came
  bool ordered_ = false;  // the coordinator wants all to freeze
  bool apart_ = false;    // reports go on as they come
};

}  // namespace roundelay::negotiate
