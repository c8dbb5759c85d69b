// A rank's side of the negotiation of one lane. Pure: requests and orders in, reports and settlements out.
//
// Uses of a name are matched in order: the k-th use on one rank meets the k-th use on every other. A use that
// failed a local check counts, so the peers' k-th use fails with its text, also when it comes later. A join
// is this rank's last use of anything until all have joined: from there all names are counted anew.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/group.h"
#include "base/status.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

// A use that ended without an operation.
struct Settled {
  std::string name;
  Status status;
  std::vector<std::uint64_t> counters{};  // of a join: as in wire::Failure
};

// When this rank may enqueue an operation on its GPU: behind the one that has the ticket `previous`.
struct GpuTicket {
  std::uint64_t number = 0;
  std::uint64_t previous = 0;  // 0: behind none
  friend bool operator==(const GpuTicket&, const GpuTicket&) = default;
};

// A fused operation that was ordered.
struct Execution {
  std::vector<std::string> names;     // its members, in buffer order; empty where skipped
  std::vector<std::int64_t> extents;  // allgather: first extents, of each tensor by group member
  std::vector<int> absent;            // group members (indices, ascending) that have joined and skip it
  bool skipped = false;               // this rank is one of them
  std::optional<GpuTicket> ticket{};  // on a GPU that other process sets use too
  friend bool operator==(const Execution&, const Execution&) = default;
};

// A schedule that is locked, and what was submitted here and neither ordered nor failed: such uses are the
// schedule's, or wait for its end.
struct Schedule {
  std::uint64_t number = 0;
  std::vector<std::vector<wire::Request>> operations;  // one period: their members, in buffer order
  std::vector<wire::Request> returned;                 // in order by name
};

// What an order means for this rank, in the order in which it has to be done.
struct Applied {
  std::vector<Execution> operations;
  std::vector<Settled> failed;
  std::optional<wire::Joined> joined;  // the join in flight is over
  // The schedule lock (wire/messages.h): one ends before all the above, one begins behind it.
  std::optional<std::uint64_t> unlock{};
  bool freeze = false;
  std::optional<Schedule> schedule{};
  int shut_down_by = -1;  // world rank; not -1: nothing will ever be ordered again
  bool removed = false;   // nor if the process set was removed
};

class Participant {
 public:
  // `member`: this rank's index in the group.
  Participant(LaneId lane, int member) : lane_(lane), member_(member) {}

  // The next use of request.name. May settle at once (see take_settled).
  void submit(const wire::Request& request);
  // Someone waits for what was submitted so far.
  void flush() { flush_wanted_ = true; }
  void leave() { leaving_ = true; }
  // The process set is being removed: nothing will be submitted any more.
  void remove() { removing_ = true; }

  // Under a lock: this rank announces no more, after so many positions. Nothing else is reported then, and
  // nothing may be submitted, until the lock is over.
  void freeze(std::uint64_t announced);
  [[nodiscard]] bool frozen() const { return frozen_.has_value(); }
  [[nodiscard]] bool ends() const { return leaving_ || removing_; }

  // What the coordinator does not know yet; nothing if there is no news.
  std::optional<wire::Report> take_report();
  // Uses that failed without a new order, because a peer had failed them before.
  std::vector<Settled> take_settled();
  // Errors (kInternal) mean that the coordinator broke the protocol: the job must end.
  Result<Applied> apply(const wire::Order& order);

  // Operations submitted and neither ordered nor failed.
  [[nodiscard]] std::size_t outstanding() const { return pending_.size(); }

 private:
  struct Pending {
    wire::Request request;
    wire::CacheId reported_as = wire::kNoCacheId;
    bool reported = false;
  };
  struct Cached {
    wire::CacheId id;
    wire::Request request;
  };

  bool begin(const wire::Request& request);  // false: it is settled
  void settle(const std::string& name);  // a use of `name` ended: deferred ones begin until one is unsettled
  void evict(wire::CacheId id);
  Status remember(const wire::FusedTensor& member, const wire::Request& request);
  Result<std::string> name_of_tensor(const wire::FusedTensor& member) const;
  Status apply_operation(const wire::FusedOperation& operation, Applied& applied);
  Status apply_tickets(const wire::OrderTickets& tickets, Applied& applied) const;
  void apply_failure(const wire::Failure& failure, Applied& applied);
  Status apply_joined(const wire::Joined& joined, Applied& applied);
  Status apply_lock(const wire::Lock& lock, Applied& applied);
  Status apply_unlock(std::uint64_t from, Applied& applied);
  std::vector<wire::Request> take_all_back();
  std::optional<wire::Report> take_report_of_freeze();
  [[nodiscard]] bool uses_deferred() const;
  std::vector<std::string> take_reportable();

  LaneId lane_;
  int member_;
  std::uint64_t last_order_ = 0;
  bool flush_wanted_ = false;
  bool unflushed_ = false;  // something was reported since the last flush
  bool leaving_ = false;
  bool left_ = false;
  bool removing_ = false;
  bool removal_said_ = false;
  std::string join_;  // the name of the join in flight; empty: none
  bool locked_ = false;
  std::optional<std::uint64_t> frozen_;
  bool frozen_said_ = false;
  bool say_applied_ = false;  // the coordinator waits to hear that an eviction was applied

  std::unordered_map<std::string, Pending> pending_;
  std::vector<std::string> to_report_;  // names in pending_ or own_errors_, in order of submission
  std::unordered_map<std::string, Cached> cache_;
  std::unordered_map<wire::CacheId, std::string> names_;
  std::unordered_map<std::string, wire::Request> own_errors_;            // reported, order still to come
  std::unordered_map<std::string, std::deque<wire::Request>> deferred_;  // uses behind an unsettled one
  std::unordered_map<std::string, std::deque<Status>> failed_ahead_;  // peers failed uses still to come here
  std::vector<Settled> settled_;
};

}  // namespace roundelay::negotiate
