// A rank's side of the schedule lock: its submissions under the lock (schedule_lock.h), which it announces to
// the other members of the group (announcements.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "base/clock.h"
#include "base/status.h"
#include "lock/announcements.h"
#include "lock/schedule_lock.h"
#include "wire/submission.h"

namespace roundelay::lock {

// A position of a locked schedule that this rank has entered.
struct Entered {
  ScheduleLock::Names names;       // its operation's tensors, in buffer order
  std::optional<Agreed> agreed{};  // an agreement's result
  Status fault{};                  // kInternal: the members' cells are broken, and the job has to end
};

// The state of a schedule that any thread may read at any time, without the lock of its owner.
struct ScheduleFlags {
  std::atomic<bool> scheduled{false};  // from begin() to end()
  std::atomic<bool> open{false};       // scheduled, and not frozen
  std::atomic<bool> unwatched{false};  // the first submission after a look() that said "never" has come
};

// One thread at a time.
class AnnouncedSchedule {
 public:
  // `announcements` are those of the group. Null: the rank never announces. `ranks`: the world ranks of the
  // group. `flags` outlives this object. The owner clears `unwatched`; this object writes the flags
  // otherwise.
  AnnouncedSchedule(std::shared_ptr<Announcements> announcements, std::vector<int> ranks,
                    ScheduleFlags& flags)
      : announcements_(std::move(announcements)), ranks_(std::move(ranks)), flags_(flags) {}

  // Returns whether the rank can announce. Without that begin() makes a frozen schedule.
  [[nodiscard]] bool can_lock() const { return announcements_ != nullptr; }
  // As ScheduleLock::begin().
  void begin(std::uint64_t number, const ScheduleLock::Operations& operations);
  // Files a submission and announces it. False: the caller negotiates it, now or when the schedule is over.
  bool file(const wire::Request& request, const std::string& values);
  // Stops announcing: file() takes nothing more.
  void freeze();
  // Returns how many positions were announced. Nothing: the schedule is not frozen, or there is none.
  [[nodiscard]] std::optional<std::uint64_t> frozen_after() const;
  // Returns whether all members have announced the positions before `until`, as far as this rank sees: it may
  // learn later than the coordinator what ranks of other nodes have announced.
  [[nodiscard]] bool all_announced(std::uint64_t until) const;
  // Returns Announcements::relay(); null without announcements.
  [[nodiscard]] Relay* relay() const { return can_lock() ? announcements_->relay() : nullptr; }
  // Ends the schedule. Returns the submissions that were not entered, which the caller negotiates.
  std::vector<wire::Submission> end();

  // Returns whether some operation is not wholly submitted here and others come after it.
  [[nodiscard]] bool any_blocked() const { return schedule_.open() && schedule_.any_blocked(); }
  // As that of ScheduleLock.
  [[nodiscard]] bool blocked(const std::string& name) const { return schedule_.blocked(name); }

  // Returns whether all members have announced the next operation.
  [[nodiscard]] bool may_enter() const;
  // Enters the next operation. Nothing: not all members have announced it.
  std::optional<Entered> enter();
  // Enters the next operation if its position is before `until`, whether or not this rank sees that all have
  // announced it.
  std::optional<Entered> enter_before(std::uint64_t until) { return with_result(schedule_.enter(until)); }
  // Freezes the schedule if an operation has waited too long (ScheduleLock::look()). Returns when to call
  // again. Never: the next submission sets ScheduleFlags::unwatched.
  Deadline look(TimePoint now);

 private:
  void publish();
  std::optional<Entered> with_result(std::optional<ScheduleLock::Names> names);

  const std::shared_ptr<Announcements> announcements_;
  const std::vector<int> ranks_;
  ScheduleFlags& flags_;
  ScheduleLock schedule_;
  std::uint64_t announced_ = 0;  // the number of positions that the members know of
  bool watched_ = true;          // the last look() named a time
};

}  // namespace roundelay::lock
