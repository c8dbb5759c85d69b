// Counts the members' answers to a freeze of the schedule lock. When one member freezes, all others have to
// freeze too. When each has said how many positions it has announced, the lock ends at the least of these
// numbers. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace roundelay::lock {

class ScheduleKeeper {
 public:
  // Begins a lock of `members` members.
  void begin(std::size_t members);
  [[nodiscard]] bool locked() const { return !counts_.empty(); }
  // Returns the number of the last lock; the first is 1.
  [[nodiscard]] std::uint64_t number() const { return number_; }

  // Records that this member has frozen after `count` positions. False if it has said so before. Only under a
  // lock.
  bool on_frozen(std::size_t member, std::uint64_t count, TimePoint now);
  // Returns true once for each lock, when some members are frozen and others are not: these have to freeze.
  bool take_freeze();
  // Ends the lock if all members are frozen, and returns the position at which it ends.
  std::optional<std::uint64_t> take_unlock();

  // Returns the members (ascending) that have not frozen although another member has.
  [[nodiscard]] std::vector<int> silent() const;
  // Returns the time at which the first member froze.
  [[nodiscard]] TimePoint asked() const { return asked_; }

  friend bool operator==(const ScheduleKeeper&, const ScheduleKeeper&) = default;

 private:
  std::uint64_t number_ = 0;
  std::vector<std::optional<std::uint64_t>> counts_;  // each member's positions; empty: no lock
  std::size_t frozen_ = 0;                            // members
  bool freeze_ordered_ = false;
  TimePoint asked_{};
};

}  // namespace roundelay::lock
