// Merges for a leader (report_tree.h) what the members below it report. Pure.
//
// A request that all of them have reported alike goes on as one. Everything else goes on as it came, so that
// the coordinator reads it as if its member had sent it: requests that differ, or that some members have not
// reported for a while; joins, departures and removals; and whatever was reported before an order that ends a
// submission in another way than with an operation. So the rules for all of these are the coordinator's
// alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/stall_limits.h"
#include "negotiate/freeze_merger.h"
#include "negotiate/merged_request.h"
#include "negotiate/report_tree.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

// One thread at a time: the thread that steps the negotiator.
class ReportMerger {
 public:
  // `tree` outlives the merger; `member` leads in it, and is not the coordinator. `limits`: the
  // coordinator's.
  ReportMerger(LaneId lane, const ReportTree& tree, int member, StallLimits limits);

  // Takes a report of a member below, or of this one. `from`: who has sent it to this leader.
  void take(int from, wire::MemberReport said, TimePoint now);
  // Takes the next order, before the members below get it.
  void on_order(const wire::Order& order);
  // Returns what goes to the member above now.
  std::vector<wire::MemberReport> take_reports(TimePoint now);
  // Returns the time at which something goes on alone because others have not reported it.
  [[nodiscard]] Deadline next_due() const;
  // Returns the number of requests that wait here for members below.
  [[nodiscard]] std::size_t waiting() const { return pending_.size(); }

 private:
  [[nodiscard]] bool is_for_all(int from, const wire::MemberReport& said) const;
  [[nodiscard]] const std::string* name_of(const wire::Report& report, std::size_t request) const;
  bool merge(int from, const wire::MemberReport& said, std::size_t request, TimePoint now);
  bool ends_linger_later(const wire::MemberReport& said);
  void pass_on(wire::MemberReport said);
  void stop_merging(const std::string& name);
  void stop_merging_all();
  void write_complete();
  void on_ordered(const wire::FusedTensor& tensor);
  void on_lock();

  const LaneId lane_;
  const ReportTree& tree_;
  const int self_;
  const std::size_t reporters_;  // this member, and those that report to it
  const Duration patience_;

  std::unordered_map<wire::CacheId, std::string> names_;    // that orders have given to ids
  std::unordered_map<std::string, MergedRequest> pending_;  // by name: not reported by all yet
  std::vector<MergedRequest> complete_;                     // reported by all; write_complete() writes them
  std::vector<wire::MemberReport> out_;                     // for the member above
  // Names whose reports go on as they come, until an order ends their submissions.
  std::unordered_set<std::string> apart_;
  std::unordered_set<std::string> joins_;  // names of joins under way
  std::uint64_t newest_ending_ = 0;        // the newest order that ends more than operations
  std::uint64_t newest_failed_join_ = 0;   // the newest order that fails a join
  FreezeMerger freeze_;
  bool locked_ = false;
  bool over_ = false;        // a member below leaves, or removes the process set
  bool lingers_ = false;     // the last report of all has not ended the linger
  bool end_linger_ = false;  // the next one does
};

}  // namespace roundelay::negotiate
