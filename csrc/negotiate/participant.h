// A rank's side of the negotiation of one lane: takes submissions and orders, and returns reports and what
// this rank has to do after an order. Pure.
//
// Submissions of one name are matched in order: the k-th submission on one rank meets the k-th submission on
// every other rank. A submission that failed a local check counts: it fails the peers' k-th submission with
// its text, also if they submit it later. A join is this rank's last submission of anything until all ranks
// have joined. From then on all names are counted anew.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/group.h"
#include "base/status.h"
#include "negotiate/applied.h"
#include "negotiate/cached_requests.h"
#include "wire/submission.h"

namespace roundelay::negotiate {

// One thread at a time: the thread that steps the negotiator.
class Participant {
 public:
  // `member`: this rank's index in the group.
  Participant(LaneId lane, int member) : lane_(lane), member_(member) {}

  // Adds the next submission of its name. It fails at once (take_failed()) if a peer has failed it before.
  void submit(const wire::Submission& submission);
  // Makes the next report ask for orders of all that is ready, without lingering: a caller waits for what was
  // submitted so far.
  void end_linger() { end_linger_wanted_ = true; }
  // Makes the next report say that this rank leaves: it called shutdown().
  void leave() { leaving_ = true; }
  // Makes a report say that this rank removes the process set, when all submissions are reported. It is the
  // last call.
  void remove() { removing_ = true; }

  // Freezes this rank's part of the lock after `announced` positions. Until the lock is over nothing else is
  // reported and nothing may be submitted. Without a lock this does nothing.
  void freeze(std::uint64_t announced);
  [[nodiscard]] bool frozen() const { return lock_.frozen.has_value(); }
  // Returns true if this rank leaves, or removes the process set.
  [[nodiscard]] bool ends() const { return leaving_ || removing_; }

  // Returns a report of all that the coordinator does not know yet. Nothing: it knows all.
  std::optional<wire::Report> take_report();
  // Returns the submissions that have failed at once.
  std::vector<FailedSubmission> take_failed() { return std::exchange(failed_, {}); }
  // Returns what the order means for this rank. kInternal: the coordinator broke the protocol, and the job
  // has to end.
  Result<Applied> apply(const wire::Order& order);

  // Returns the number of operations that have begun and are neither ordered nor failed. A submission that
  // waits for an earlier one of its name does not count.
  [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }

 private:
  struct Outstanding {
    wire::Submission submission;
    wire::CacheId reported_as = wire::kNoCacheId;  // kNoCacheId: in full
    bool reported = false;
  };
  // The schedule lock, as this rank knows it.
  struct Lock {
    bool active = false;
    std::optional<std::uint64_t> frozen;  // the number of positions after which it is frozen
    bool reported = false;                // the coordinator knows that it is frozen
  };

  bool begin(const wire::Submission& submission);  // false: the submission has ended
  void begin_deferred(const std::string& name);
  void evict(wire::CacheId id);
  void fill(wire::Report& report, const std::vector<std::string>& names);
  Status apply_operation(const wire::FusedOperation& operation, Applied& applied);
  Status apply_tickets(const wire::OrderTickets& tickets, Applied& applied) const;
  void apply_failure(const wire::Failure& failure, Applied& applied);
  Status apply_joined(const wire::Joined& joined, Applied& applied);
  Status apply_lock(const wire::Lock& lock, Applied& applied);
  Status apply_unlock(std::uint64_t from, Applied& applied);
  std::vector<wire::Submission> take_all_back();
  std::optional<wire::Report> take_report_of_freeze();
  [[nodiscard]] bool any_deferred() const;
  std::vector<std::string> take_reportable();

  const LaneId lane_;
  const int member_;
  std::uint64_t last_order_ = 0;  // sequence of the newest order that was applied
  bool end_linger_wanted_ = false;
  bool may_linger_ = false;  // something was reported since the linger was last ended
  bool leaving_ = false;
  bool leave_reported_ = false;
  bool removing_ = false;
  bool removal_reported_ = false;
  bool report_applied_ = false;  // the coordinator has to be told that this rank has applied an eviction
  std::string join_;             // name of the join in flight; empty: none
  Lock lock_;

  std::unordered_map<std::string, Outstanding> outstanding_;
  std::unordered_map<std::string, wire::Request>
      own_errors_;                      // submissions that failed here; no order said so yet
  std::vector<std::string> to_report_;  // names in pending_ or own_errors_, in order of submission
  CachedRequests cache_;
  std::unordered_map<std::string, std::deque<wire::Submission>>
      deferred_;  // submissions after one that has not ended
  // Errors of submissions that peers failed and that this rank has not submitted yet; by name.
  std::unordered_map<std::string, std::deque<Status>> failed_by_peers_;
  std::vector<FailedSubmission> failed_;
};

}  // namespace roundelay::negotiate
