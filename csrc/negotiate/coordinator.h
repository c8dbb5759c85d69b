// The coordinator of one lane: reports in, orders out. Pure: time is an argument, nothing blocks.
//
// A request waits in the table until every member of the group has reported it. Then it is ready, and gathers
// with others until fuse's firing rule (theta, a flush, the linger) lets them go together as one order. A
// disagreement or a member's own error needs no waiting: it fails the use at once, with one text for all.
//
// Orders that repeat exactly become a schedule, which needs no orders any more until a member freezes
// (lock.cc).
//
// A member that has joined is not waited for (join.cc). Its join is a request like any other, in a slot of
// its own: who has reported that slot has joined.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "fuse/plan.h"
#include "negotiate/response_cache.h"
#include "negotiate/schedule_finder.h"
#include "negotiate/schedule_keeper.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

struct CoordinatorOptions {
  fuse::PlanLimits plan;
  fuse::FireLimits fire;
  std::size_t cache_capacity = 1024;
  Duration stall_warning = std::chrono::seconds(60);  // zero: no warnings
  Duration stall_abort{0};                            // zero: never
  bool schedule_lock = false;                         // members can announce what they submit
};

// Who was last to report a tensor, and how long the first had waited by then.
struct ReadyNote {
  std::string name;
  int last_rank = 0;  // world rank
  Duration waited{};
};

class Coordinator {
 public:
  Coordinator(LaneId lane, Group group, CoordinatorOptions options);

  // `member` is the reporter's index in the group. Errors (kInternal): that rank broke the protocol.
  Status on_report(int member, const wire::Report& report, TimePoint now);
  // Whether operations on a GPU take turns with those of other process sets: then an order says which they
  // are, for tickets to be given (negotiate/order_queue.h), and none of them is in a schedule.
  void take_tickets(bool yes);
  // The next order that is due; call until there is none.
  std::optional<wire::Order> take_order(TimePoint now);
  // When time alone will make the next order or stall message due; sometimes a little before that.
  [[nodiscard]] Deadline next_due() const;
  // Lines that name the tensors and ranks that are overdue; each tensor again after every further warning
  // time.
  std::vector<std::string> take_stall_warnings(TimePoint now);
  // The ranks that these lines named since the last call; world ranks.
  std::set<int> take_late_ranks() { return std::exchange(late_, {}); }
  std::vector<ReadyNote> take_ready_notes();
  // Who has not answered a freeze for the time after which a missing rank is an error.
  std::optional<wire::Abort> take_fault(TimePoint now) const;

  // Tensors that some rank waits for, and all state that must be empty when nothing is in flight (tests).
  [[nodiscard]] std::size_t waiting() const { return table_.size() + early_joins_.size(); }

 private:
  struct Slot {
    wire::Request request;  // the first reporter's
    int first_member = 0;
    std::vector<bool> reported;  // by member
    int missing = 0;
    std::vector<std::int64_t> extents;  // allgather: as in wire::FusedOperation
    TimePoint first_seen{};
    TimePoint warned{};
  };
  using Slots = std::unordered_map<std::string, Slot>;
  struct Ready {
    wire::Request request;
    std::size_t bytes;
    std::uint64_t fusion_class;
    std::vector<std::int64_t> extents;
    std::vector<std::int32_t> absent;
  };

  Status on_request(int member, const wire::Request& request, TimePoint now);
  Slots::iterator open_slot(int member, const wire::Request& request, TimePoint now);
  Slot take_slot(Slots::iterator found);
  void settle_if_complete(Slots::iterator found, int last_member, TimePoint now);
  void make_ready(Slot slot, int last_member, TimePoint now);
  void fail(const wire::Request& request, std::string text, TimePoint now,
            StatusCode code = StatusCode::kIncomplete);
  void count_unnamed(const wire::Request& request);
  // Has this member nothing more to say about uses before its last report?
  [[nodiscard]] bool heard_all(int member) const;
  [[nodiscard]] bool settled_without(const std::string& name, int member) const;
  void forget_what_all_applied();
  [[nodiscard]] bool all_remove() const;
  void fail_incomplete(TimePoint now);
  // What writing one order has to remember: whose ids must live until it is written.
  struct Writing {
    std::unordered_set<std::string_view> names;  // filled when first needed
    bool cache_full = false;
  };
  void write_operations(wire::Order& order);
  wire::FusedTensor tensor_for(const Ready& ready, wire::Order& order, Writing& writing);
  std::uint64_t fusion_class_of(const wire::Request& request, const std::vector<std::int32_t>& absent);
  [[nodiscard]] int rank_of(int member) const { return group_.ranks[static_cast<std::size_t>(member)]; }

  // join.cc
  [[nodiscard]] bool has_joined(int member) const;
  [[nodiscard]] std::vector<std::int32_t> absent_from(const Slot& slot) const;
  [[nodiscard]] std::string refusal_of(const Slot& slot) const;
  void on_joined(Slots::iterator found, int member, TimePoint now);
  Status take_early_join(int member, TimePoint now);

  // lock.cc
  Status on_report_under_lock(int member, const wire::Report& report, TimePoint now);
  std::optional<wire::Order> take_order_under_lock();
  void lock_if_periodic(wire::Order& order);
  [[nodiscard]] bool may_lock() const;
  [[nodiscard]] std::string silent_ranks() const;
  [[nodiscard]] Deadline silence_due() const;
  void warn_of_silence(TimePoint now, std::vector<std::string>& lines);

  // stall.cc
  [[nodiscard]] TimePoint stall_due(const Slot& slot) const;
  void restart_join_clock(TimePoint now);
  void abort_stalled(TimePoint now);
  [[nodiscard]] std::vector<int> ranks_where(const Slot& slot, bool reported) const;
  [[nodiscard]] std::string members_where(const Slot& slot, bool reported) const;  // "ranks 1, 2"
  [[nodiscard]] bool crossed(const Slot& one, const Slot& other) const;
  [[nodiscard]] std::string crossed_with(const Slot& slot) const;

  LaneId lane_;
  Group group_;
  CoordinatorOptions options_;
  ResponseCache cache_;
  std::uint64_t sequence_ = 0;
  ScheduleFinder finder_;
  ScheduleKeeper keeper_;
  std::size_t period_ = 0;       // of the lock
  std::uint64_t locked_by_ = 0;  // the sequence of the order that began the last lock
  TimePoint silence_warned_{};
  std::set<int> late_;  // named in a warning
  bool takes_tickets_ = false;
  bool flush_ = false;
  int left_by_ = -1;
  bool closed_ = false;

  Slots table_;
  Slot* join_ = nullptr;                // in table_, while any member has joined
  bool join_over_ = false;              // all have, or it failed: in the next order
  std::optional<wire::Joined> joined_;  // all have
  // By operation: the largest number of an unnamed use that became ready or failed.
  std::array<std::uint64_t, kOperationCount> unnamed_{};
  TimePoint stall_due_ = TimePoint::max();  // nothing in table_ is overdue before
  std::vector<Ready> ready_;                // in the order of becoming ready
  std::size_t ready_bytes_ = 0;
  TimePoint oldest_ready_{};
  std::vector<wire::Failure> failures_;
  std::vector<ReadyNote> notes_;
  std::vector<std::uint64_t> applied_;  // by member: the newest order it is known to have applied
  // A report may name an id that an order on its way evicts: the member says it again in full when it has
  // applied that order. What comes after all its uses (a join, a removal) waits for that.
  std::unordered_map<wire::CacheId, std::uint64_t> evicted_by_;  // until every member has applied that order
  std::vector<std::uint64_t> unheard_until_;                     // by member: an order's sequence
  std::unordered_map<int, wire::Request> early_joins_;           // by member
  std::vector<bool> removing_;                                   // by member
  // Failed uses by name, until every member has applied the order that failed them. A report of such a name
  // by a member that had not applied it belongs to the failed use.
  std::unordered_map<std::string, std::uint64_t> settled_;
  using ClassKey = std::tuple<DType, DeviceType, ReduceOp, double, std::int64_t, double, std::int64_t,
                              std::vector<std::int32_t>>;
  std::map<ClassKey, std::uint64_t> classes_;
};

}  // namespace roundelay::negotiate
