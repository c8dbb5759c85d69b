// Finds the requests that some members reported and others did not report in time, to warn of them and to
// give them up. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "base/stall_limits.h"
#include "negotiate/join_tracker.h"
#include "negotiate/request_table.h"

namespace roundelay::negotiate {

class StallClock {
 public:
  // `group` and `joins` outlive the clock.
  StallClock(const Group& group, const JoinTracker& joins, StallLimits limits)
      : group_(group), joins_(joins), limits_(limits) {}

  // Call it when this request was added to `table`.
  void on_opened(const RequestTable& table, const ReportedRequest& reported);
  // Returns the time at which a request of `table` may be overdue; sometimes a little too early.
  [[nodiscard]] Deadline next_due(const RequestTable& table) const;

  // Returns lines that name overdue requests and the ranks that did not submit them; a request comes again
  // after every further warning time. Adds the world ranks to `late`.
  std::vector<std::string> take_warnings(RequestTable& table, TimePoint now, std::set<int>& late);
  // Returns the names (ascending) of the requests that have to be given up.
  [[nodiscard]] std::vector<std::string> overdue(const RequestTable& table, TimePoint now) const;
  // Returns the text that says why this request is given up.
  [[nodiscard]] std::string abort_text(const ReportedRequest& reported) const;

 private:
  [[nodiscard]] TimePoint due_of(const ReportedRequest& reported) const;
  [[nodiscard]] bool warns_of(const ReportedRequest& reported, Duration age, TimePoint now) const;
  [[nodiscard]] std::vector<int> reporters_of(const ReportedRequest& reported) const;
  [[nodiscard]] bool crossed(const ReportedRequest& one, const ReportedRequest& other) const;
  [[nodiscard]] std::string crossed_with(const RequestTable& table, const ReportedRequest& reported) const;

  const Group& group_;
  const JoinTracker& joins_;
  const StallLimits limits_;
  TimePoint due_ = TimePoint::max();  // no request in the table is overdue before
};

}  // namespace roundelay::negotiate
