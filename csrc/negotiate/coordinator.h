// The coordinator of one lane: reports in, orders out. Pure: time is an argument, nothing blocks.
//
// A request waits in the table until every member of the group has reported it. Then it is ready, and gathers
// with others until fuse's firing rule (theta, a flush, the linger) lets them go together as one order. A
// disagreement or a member's own error needs no waiting: it fails the use at once, with one text for all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "fuse/plan.h"
#include "negotiate/response_cache.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

struct CoordinatorOptions {
  fuse::PlanLimits plan;
  fuse::FireLimits fire;
  std::size_t cache_capacity = 1024;
  Duration stall_warning = std::chrono::seconds(60);  // zero: no warnings
  Duration stall_abort{0};                            // zero: never
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
  // The next order that is due; call until there is none.
  std::optional<wire::Order> take_order(TimePoint now);
  // When time alone will make the next order or stall message due.
  [[nodiscard]] Deadline next_due() const;
  // Lines that name the tensors and ranks that are overdue; each tensor again after every further warning
  // time.
  std::vector<std::string> take_stall_warnings(TimePoint now);
  std::vector<ReadyNote> take_ready_notes();

  // Tensors that some rank waits for, and all state that must be empty when nothing is in flight (tests).
  [[nodiscard]] std::size_t waiting() const { return table_.size(); }

 private:
  struct Slot {
    wire::Request request;  // the first reporter's
    int first_member = 0;
    std::vector<bool> reported;  // by member
    int missing = 0;
    TimePoint first_seen{};
    TimePoint warned{};
  };
  struct Ready {
    wire::Request request;
    std::uint64_t fusion_class;
  };

  Status on_request(int member, const wire::Request& request, std::uint64_t last_order, TimePoint now);
  void fail(const wire::Request& request, StatusCode code, std::string text);
  void make_ready(Slot slot, int last_member, TimePoint now);
  [[nodiscard]] bool settled_without(const std::string& name, std::uint64_t last_order) const;
  void forget_settled();
  void abort_stalled(TimePoint now);
  std::uint64_t fusion_class_of(const wire::Request& request);
  // What writing one order has to remember: whose ids must live until it is written.
  struct Writing {
    std::unordered_set<std::string_view> names;  // filled when first needed
    bool cache_full = false;
  };
  wire::Member member_for(const wire::Request& request, wire::Order& order, Writing& writing);
  [[nodiscard]] std::string members_where(const Slot& slot, bool reported) const;  // "ranks 1, 2"

  LaneId lane_;
  Group group_;
  CoordinatorOptions options_;
  ResponseCache cache_;
  std::uint64_t sequence_ = 0;
  bool flush_ = false;
  int left_by_ = -1;
  bool closed_ = false;

  std::unordered_map<std::string, Slot> table_;
  std::vector<Ready> ready_;  // in the order of becoming ready
  std::size_t ready_bytes_ = 0;
  TimePoint oldest_ready_{};
  std::vector<wire::Failure> failures_;
  std::vector<ReadyNote> notes_;
  std::vector<std::uint64_t> applied_;  // by member: the newest order it is known to have applied
  // Failed uses by name, until every member has applied the order that failed them. A report of such a name
  // by a member that had not applied it belongs to the failed use.
  std::unordered_map<std::string, std::uint64_t> settled_;
  using ClassKey = std::tuple<Operation, DType, ReduceOp, double, std::int64_t, double, std::int64_t>;
  std::map<ClassKey, std::uint64_t> classes_;
};

}  // namespace roundelay::negotiate
