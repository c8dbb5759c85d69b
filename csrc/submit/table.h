// The tensor table of one lane: the operations in flight by name, and the queue of requests that are not yet
// negotiated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/status.h"
#include "complete/handles.h"
#include "lock/announced_schedule.h"
#include "submit/entry.h"
#include "wire/submission.h"

namespace roundelay::submit {

inline constexpr const char* kJoinName = "<join>";  // the name of every join; no other operation may have it

// Thread-safe. Framework threads add entries under one short lock. The holder of the negotiation token
// (execute/progress_token.h) drains the requests. A lane or the completer extracts an entry to complete
// it. An entry leaves the table exactly once: so it is completed exactly once.
//
// Under a schedule lock (lock/schedule_lock.h), add() does not queue a request that belongs to the
// schedule: it announces the request to the peers instead.
class TensorTable {
 public:
  // `announcements` are those of the lane's group. Null: the table never announces. `ranks`: the world ranks
  // of the group.
  explicit TensorTable(std::shared_ptr<lock::Announcements> announcements = nullptr,
                       std::vector<int> ranks = {})
      : schedule_(std::move(announcements), std::move(ranks), flags_) {}

  // Files the entry, gives it a handle of `handles` and queues (or announces) its request. Any thread. Names
  // an unnamed request before all checks: an error must not put the counters of ranks out of step. Sets a
  // join's name, and marks requests that the response cache must not keep. Errors: kInvalidArgument if the
  // name is in flight (the peers get the request with this error), if a join is pending, or if the name is
  // kJoinName (the peers are told of neither); after close(), its cause.
  Result<complete::Handle> add(Entry entry, complete::HandleTable& handles) EXCLUDES(mutex_);
  // Gives an entry with a call of its own a handle of `handles`. Keeps neither entry nor name. Errors: after
  // close(), its cause.
  Result<complete::Handle> admit(Entry& entry, complete::HandleTable& handles) EXCLUDES(mutex_);
  // Queues a request that failed this rank's local checks: it has no entry and carries its error to the
  // peers. Does nothing after close(), or if this rank has joined. Any thread.
  void add_error(wire::Request request) EXCLUDES(mutex_);

  // Moves the submissions that came since the last call into `out`. Clears `out` first and keeps its
  // capacity.
  void drain(std::vector<wire::Submission>& out) EXCLUDES(mutex_);
  [[nodiscard]] bool anything_queued() const EXCLUDES(mutex_);

  // Ends a join when all members have joined; Completer::complete() follows. From the join's add() until
  // joined() or its release(), the table refuses everything else with kInvalidArgument, without telling the
  // peers. `counters`: the numbers from which the counters of unnamed operations continue, by operation.
  void joined(const std::vector<std::uint64_t>& counters) EXCLUDES(mutex_);
  // Raises the counters to those of the peers, who may have named operations meanwhile. Call it before the
  // release() of a join that failed.
  void join_failed(const std::vector<std::uint64_t>& counters) EXCLUDES(mutex_);

  // Gives the entry to the caller, who completes it. The name stays taken until release(). Null: the table
  // has no such entry, or gave it away already. Any thread.
  std::shared_ptr<Entry> extract(const std::string& name) EXCLUDES(mutex_);
  // Frees the name of an extracted entry, if the table has it.
  void release(const std::string& name) EXCLUDES(mutex_);
  // Makes every later add() fail with the first call's `why`, and ends the schedule. Returns the entries that
  // were not extracted; the caller fails them.
  std::vector<std::shared_ptr<Entry>> close(Status why) EXCLUDES(mutex_);
  // Returns the number of names in flight.
  [[nodiscard]] std::size_t in_flight() const EXCLUDES(mutex_);

  // The next seven functions negotiate the schedule lock. Only the holder of the negotiation token calls
  // them. Returns what carries announcements to other nodes (lock/announcements.h). Null: nothing has to.
  [[nodiscard]] lock::Relay* relay() const EXCLUDES(mutex_);
  // Returns whether members can announce. Without that begin_schedule() makes a frozen schedule.
  [[nodiscard]] bool can_lock() const EXCLUDES(mutex_);
  // Begins schedule `number`, whose period is `operations`, and files `returned` again: the submissions that
  // were drained and have neither been ordered nor failed. Submissions of one name are in the order of their
  // submission.
  void begin_schedule(std::uint64_t number, const lock::ScheduleLock::Operations& operations,
                      std::vector<wire::Submission> returned) EXCLUDES(mutex_);
  // Stops announcing: later requests are queued.
  void freeze() EXCLUDES(mutex_);
  // Returns how many positions were announced. Nothing: the schedule is not frozen, or there is none.
  [[nodiscard]] std::optional<std::uint64_t> frozen_after() const EXCLUDES(mutex_);
  // Returns whether this rank sees that all have announced the positions before `until`, so that it can end
  // the schedule there.
  [[nodiscard]] bool all_announced(std::uint64_t until) const EXCLUDES(mutex_);
  // Ends the schedule. Queues the requests that were not entered before those that came later.
  void end_schedule() EXCLUDES(mutex_);

  // Any thread may call the rest. LaneSchedule calls enter() and enter_before(), one at a time.
  // True from begin_schedule() to end_schedule().
  [[nodiscard]] bool scheduled() const { return flags_.scheduled.load(std::memory_order_acquire); }
  // Returns true while the schedule is not frozen.
  [[nodiscard]] bool schedule_open() const { return flags_.open.load(std::memory_order_acquire); }
  // Tells the table that a caller waits for this handle. Freezes the schedule if this operation comes after
  // one that is not submitted here. Returns true if it froze the schedule.
  bool waited_for(complete::Handle handle) EXCLUDES(mutex_);
  // Returns whether all ranks have announced the next operation.
  [[nodiscard]] bool may_enter() const EXCLUDES(mutex_);
  // Enters the next operation. Nothing: not all ranks have announced it.
  std::optional<lock::Entered> enter() EXCLUDES(mutex_);
  // Enters the next operation if its position is before `until`, whether or not this rank sees that all have
  // announced it.
  std::optional<lock::Entered> enter_before(std::uint64_t until) EXCLUDES(mutex_);
  // Freezes the schedule if an operation has waited for lock::ScheduleLock::kFreezeTimeout. Returns when to
  // call again. Never: the next submission sets a flag. The submitting thread takes it with take_unwatched(),
  // and wakes the lane's thread, which calls look().
  Deadline look(TimePoint now) EXCLUDES(mutex_);
  // Returns whether the first submission after a look() that said "never" came, and clears the flag.
  [[nodiscard]] bool take_unwatched() {
    return flags_.unwatched.load(std::memory_order_relaxed) && flags_.unwatched.exchange(false);
  }

 private:
  void take_in(const wire::Request& request, const std::string& values) REQUIRES(mutex_);
  [[nodiscard]] bool blocked(complete::Handle handle) const REQUIRES(mutex_);
  void name_if_unnamed(wire::Request& request) REQUIRES(mutex_);
  [[nodiscard]] Status refuse_if_closed(const wire::Request& request) const REQUIRES(mutex_);
  [[nodiscard]] std::string refusal_of(const wire::Request& request) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Status closed_ GUARDED_BY(mutex_);  // the cause after close(); ok before
  std::array<std::uint64_t, kOperationCount> unnamed_ GUARDED_BY(mutex_){};  // names given, by operation
  bool joined_ GUARDED_BY(mutex_) = false;                                   // a join is pending
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_ GUARDED_BY(mutex_);  // null: extracted
  std::vector<wire::Submission> queue_ GUARDED_BY(mutex_);

  lock::ScheduleFlags flags_;  // any thread reads them
  lock::AnnouncedSchedule schedule_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::submit
