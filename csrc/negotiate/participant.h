// A rank's side of the negotiation of one lane. Pure: requests and orders in, reports and settlements out.
//
// Uses of a name are matched in order: the k-th use on one rank meets the k-th use on every other. A use that
// failed a local check counts, so the peers' k-th use fails with its text, also when it comes later.
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
};

// What an order means for this rank, in the order in which it has to be done.
struct Applied {
  std::vector<std::vector<std::string>> operations;  // the members of each fused operation, by name
  std::vector<Settled> failed;
  int shut_down_by = -1;  // world rank; not -1: nothing will ever be ordered again
};

class Participant {
 public:
  explicit Participant(LaneId lane) : lane_(lane) {}

  // The next use of request.name. May settle at once (see take_settled).
  void submit(const wire::Request& request);
  // Someone waits for what was submitted so far.
  void flush() { flush_wanted_ = true; }
  void leave() { leaving_ = true; }

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

  void begin(const wire::Request& request);
  void settle(const std::string& name);  // a use of `name` ended: the next deferred one begins
  void evict(wire::CacheId id);
  Status remember(const wire::Member& member, const wire::Request& request);
  Result<std::string> name_of_member(const wire::Member& member) const;
  Status apply_operation(const wire::FusedOperation& operation, Applied& applied);
  void apply_failure(const wire::Failure& failure, Applied& applied);

  LaneId lane_;
  std::uint64_t last_order_ = 0;
  bool flush_wanted_ = false;
  bool unflushed_ = false;  // something was reported since the last flush
  bool leaving_ = false;
  bool left_ = false;

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
