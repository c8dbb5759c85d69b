// The coordinator's side of a locked schedule: freeze-then-order. One member that announces no more makes all
// others stop, too; when each has said how far it is, the lock ends at the least of these. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace roundelay::negotiate {

class ScheduleKeeper {
 public:
  void begin(std::size_t members);
  [[nodiscard]] bool locked() const { return !counts_.empty(); }
  [[nodiscard]] std::uint64_t number() const { return number_; }  // of the last lock, from 1

  // This member has frozen after so many positions. False: it had said so before.
  bool on_frozen(std::size_t member, std::uint64_t count, TimePoint now);
  // Once, when some are frozen and others not.
  bool take_freeze();
  // Once, when all are: the position where the lock ends. It is over then.
  std::optional<std::uint64_t> take_unlock();

  // Members that have not answered yet, and since when they are asked; none while nobody has frozen.
  [[nodiscard]] std::vector<int> silent() const;
  [[nodiscard]] TimePoint asked() const { return asked_; }

  friend bool operator==(const ScheduleKeeper&, const ScheduleKeeper&) = default;

 private:
  std::uint64_t number_ = 0;
  std::vector<std::optional<std::uint64_t>> counts_;  // by member; empty: no lock
  std::size_t frozen_ = 0;
  bool freeze_ordered_ = false;
  TimePoint asked_{};
};

}  // namespace roundelay::negotiate
