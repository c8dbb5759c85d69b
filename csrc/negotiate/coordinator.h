// The coordinator of one lane: takes reports and makes orders. Pure: time is an argument, nothing blocks.
//
// A request waits in a table until every member of the group has reported it. Then it is ready, and waits for
// others until they go into one order together (ready_queue.h). A disagreement, or a member's own error,
// fails the submission at once, with one text for all members.
//
// Orders that repeat exactly become a schedule, which needs no orders until a member freezes
// (schedule_coordinator.h). Nobody waits for members that have joined (join_tracker.h). Warnings name members
// that are late (stall_clock.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "lock/schedule_coordinator.h"
#include "negotiate/applied_orders.h"
#include "negotiate/failures.h"
#include "negotiate/fusion_plan.h"
#include "negotiate/join_tracker.h"
#include "negotiate/ready_queue.h"
#include "negotiate/reporters.h"
#include "negotiate/request_table.h"
#include "negotiate/response_cache.h"
#include "negotiate/stall_clock.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

struct CoordinatorOptions {
  FusionLimits plan;
  FireLimits fire;
  std::size_t cache_capacity = 1024;                  // requests in the response cache; 0: no cache
  Duration stall_warning = std::chrono::seconds(60);  // warns of late ranks after this time; zero: never
  Duration stall_abort{0};                            // gives up a request after this time; zero: never
  bool schedule_lock = false;                         // members can announce what they submit
  int fan_out = 8;                                    // of ReportTree
};

// Says for the timeline who was the last rank to report a tensor, and how long the first one had waited; of
// ranks that report through a leader, the first one of all below it, from when the leader had heard all.
struct ReadyNote {
  std::string name;
  int last_rank = 0;  // world rank
  Duration waited{};
};

// One thread at a time: the thread that steps the negotiator.
class Coordinator {
 public:
  Coordinator(LaneId lane, Group group, const CoordinatorOptions& options);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Takes what members have reported. kInternal: a rank broke the protocol, and the job has to end.
  Status on_report(const Reporters& who, TimePoint now);
  // Says whether operations on a GPU need tickets, because other process sets use the GPUs too. If so, orders
  // mark these operations for tickets (negotiate/order_queue.h), and no schedule has any of them.
  void set_needs_tickets(bool yes);
  // Returns the next order that is due. Call it until there is none.
  std::optional<wire::Order> take_order(TimePoint now);
  // Returns the time at which the next order or stall warning is due without a message; sometimes a little
  // too early.
  [[nodiscard]] Deadline next_due() const;
  // Returns lines that name overdue tensors and late ranks; each tensor again after every further warning
  // time.
  std::vector<std::string> take_stall_warnings(TimePoint now);
  // Returns the world ranks that these lines named since the last call.
  std::set<int> take_late_ranks() { return std::exchange(late_, {}); }
  // Returns a note for each tensor that became ready since the last call; none in a group of one rank.
  std::vector<ReadyNote> take_ready_notes() { return std::exchange(notes_, {}); }
  // Returns a fault if a member has not answered a freeze for the stall abort time.
  [[nodiscard]] std::optional<wire::Abort> take_fault(TimePoint now) const;

  // Returns the number of requests that are not ready yet: some member waits for another one's report.
  [[nodiscard]] std::size_t waiting() const { return table_.size() + joins_.deferred(); }

 private:
  using Iterator = RequestTable::Iterator;

  Status take_requests(const Reporters& who, TimePoint now);
  Status take_deferred_join(int member, TimePoint now);
  Status on_request(const Reporters& who, const wire::Request& request, std::size_t number, TimePoint now);
  [[nodiscard]] std::string name_of(const Reporters& who) const;
  ReportedRequest take_reported(Iterator position);
  void decide_if_complete(Iterator position, int last_member, TimePoint now);
  void make_ready(ReportedRequest reported, int last_member, TimePoint now);
  void on_joined(Iterator position, int member, TimePoint now);
  void fail(const wire::Request& request, std::string text, TimePoint now,
            StatusCode code = StatusCode::kIncomplete);
  void give_up_stalled(TimePoint now);
  [[nodiscard]] bool all_remove() const;
  void fail_incomplete(TimePoint now);
  [[nodiscard]] bool may_lock() const;
  std::optional<wire::Order> take_order_under_lock();
  [[nodiscard]] int rank_of(int member) const { return group_.ranks[static_cast<std::size_t>(member)]; }

  const LaneId lane_;
  const Group group_;
  const bool locks_schedules_;
  std::uint64_t sequence_ = 0;  // that of the newest order
  RequestTable table_;
  JoinTracker joins_;
  StallClock stall_;
  AppliedOrders applied_;
  ResponseCache cache_;
  ReadyQueue ready_;
  lock::ScheduleCoordinator schedule_;
  Failures failures_;
  std::vector<ReadyNote> notes_;
  std::set<int> late_;          // world ranks that warnings named
  std::vector<bool> removing_;  // one for each member
  int left_by_ = -1;            // the first world rank that left
  bool needs_tickets_ = false;
  bool end_linger_ = false;
  bool closed_ = false;  // the last order was made
};

}  // namespace roundelay::negotiate
