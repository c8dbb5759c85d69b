// The coordinator's side of the schedule lock: begins a lock when orders repeat exactly, and ends it when a
// member freezes. Under a lock members need no orders. Pure. The members' side is in announced_schedule.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "base/stall_limits.h"
#include "base/status.h"
#include "lock/schedule_finder.h"
#include "lock/schedule_keeper.h"
#include "wire/messages.h"

namespace roundelay::lock {

class ScheduleCoordinator {
 public:
  using Operations = std::vector<ScheduleFinder::Ids>;

  // `group` outlives this object. `limits`: how long a member may take to answer a freeze.
  ScheduleCoordinator(const Group& group, StallLimits limits) : group_(group), limits_(limits) {}

  [[nodiscard]] bool locked() const { return keeper_.locked(); }
  // Returns true if the member wrote the report before it heard of the last lock. Ignore it: the member has
  // put all of its requests into the schedule, and negotiates anew those that do not fit.
  [[nodiscard]] bool outdated(const wire::Report& report) const { return report.last_order < locked_by_; }

  // Records the operations of a negotiated order. Returns false if the order also has something that no
  // schedule can contain: an error, a join, a change of process sets.
  bool on_order(const wire::Order& order);
  // Forgets the operations up to now: the search for a period begins anew.
  void interrupt();
  // Begins a lock with `order` if the operations up to it repeat. True if it does. `lockable` says whether
  // members can lock a period (lock/lockable.h).
  bool begin_if_periodic(wire::Order& order, const std::function<bool(const Operations& period)>& lockable);

  // Takes a report that was written under the lock, of one member or alike of several, of which some may have
  // frozen before. kInternal: a member broke the protocol.
  Status on_report(std::span<const int> members, const wire::Report& report, TimePoint now);
  // Writes into `order` that members have to freeze, or that the lock is over. False if neither is due. Only
  // while locked().
  bool write(wire::Order& order);

  // Returns the time at which a warning or an abort is due for a member that does not answer a freeze.
  [[nodiscard]] Deadline next_due() const;
  // Returns a line that names the members that do not answer; again after every further warning time. Adds
  // their world ranks to `late`.
  std::optional<std::string> take_warning(TimePoint now, std::set<int>& late);
  // Returns the fault of a member that has not answered in time.
  [[nodiscard]] std::optional<wire::Abort> fault(TimePoint now) const;

 private:
  void unlocked(std::uint64_t positions);
  [[nodiscard]] std::string silence(TimePoint now) const;
  [[nodiscard]] std::vector<int> silent_ranks() const;

  const Group& group_;
  const StallLimits limits_;
  ScheduleFinder finder_;
  ScheduleKeeper keeper_;
  std::size_t period_ = 0;       // the period of the last lock, in operations
  std::uint64_t locked_by_ = 0;  // sequence of the order that began the last lock
  TimePoint warned_{};           // the last warning of silent members, or the time at which they were asked
};

}  // namespace roundelay::lock
