// One simulated rank: a negotiator over its end of the inproc channel, a table, and the outcome of each use.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "channel/channel.h"
#include "complete/completer.h"
#include "runtime/session/negotiator.h"
#include "submit/table.h"
#include "tests/cpp/announced_words.h"

namespace roundelay::sim {

struct Use {
  std::string name;  // if empty, the table names the use
  Operation operation = Operation::kAllreduce;
  std::vector<std::int64_t> shape{4};
  DType dtype = DType::kFloat32;
  std::vector<wire::TensorSpec> others{};
  int root = -1;
  std::string local_error{};   // if not empty, this rank's checks fail with this text
  bool may_duplicate = false;  // may be called while the use before it is in flight
};

// The end of one use of a name on one rank.
struct Outcome {
  bool local = false;  // this rank's own checks refused it, and the caller saw that at once
  Status status{};
};

class Rank final : public runtime::NegotiationSink {
 public:
  Rank(int rank, int size, std::unique_ptr<channel::Channel> channel, negotiate::CoordinatorOptions options,
       std::shared_ptr<AnnouncedWords::Words> words)
      : table(std::make_shared<AnnouncedWords>(std::move(words), rank)),
        rank_(rank),
        size_(size),
        channel_(std::move(channel)),
        completer_(handles_, [](const submit::Entry&, TimePoint) {}),
        negotiator(*channel_, rank, size, options, *this) {
    Group world{0, {}, rank};
    for (int r = 0; r < size; ++r) world.ranks.push_back(r);
    negotiator.add_lane(LaneId{}, world, table);
  }

  // Submits one use of the script. Returns false if it has to wait: its name is in flight, or this rank has
  // joined.
  bool submit(const Use& use, bool duplicate) {
    if (in_flight_.contains(submit::kJoinName)) return false;
    const std::string name = name_of_next(use);
    const bool busy = in_flight_.contains(name);
    if (busy && !(use.may_duplicate && duplicate)) {
      table.waited_for(in_flight_[name].handle);
      return false;
    }
    if (use.name.empty() && use.operation != Operation::kJoin) ++unnamed_[index_of(use)];
    submit::Entry entry;
    entry.request.name = use.name;
    entry.request.operation = use.operation;
    entry.request.shape = use.shape;
    entry.request.dtype = use.dtype;
    entry.request.others = use.others;
    entry.request.root = use.root;
    if (!use.local_error.empty() && !busy) {
      entry.request.error = use.local_error;
      table.add_error(entry.request);
      outcomes[key(name)].push_back({true, Status::invalid(use.local_error)});
      return true;
    }
    auto handle = table.add(std::move(entry), handles_);
    if (handle.ok()) {
      in_flight_[name] = {*handle, key(name)};
      outcomes[key(name)].push_back({});
      ++submitted;
    } else if (!ended.ok()) {
      ++refused_after_end;
    } else {
      pending_errors_[name].push_back({true, handle.status()});
    }
    return true;
  }

  // Acts as the lane: begins the next operation that needs no order. Returns false if there is none.
  bool enter() {
    auto names = table.enter();
    if (!names) return false;
    enter(std::move(*names));
    return true;
  }
  // Acts as the lane's thread: looks after a schedule, and returns when to look again.
  Deadline look(TimePoint now) { return table.look(now); }

  // Acts as the lane: completes the oldest ordered operation. Returns false if there is none.
  bool run_lane() {
    if (queue_.empty()) return false;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    if (work.joined) {
      for (std::size_t i = 0; i < unnamed_.size(); ++i) unnamed_[i] = work.joined->counters.at(i);
      last_joined.push_back(work.joined->last_rank);
      table.joined(work.joined->counters);
      finish(submit::kJoinName, Status{});
      ++epoch_;
      return true;
    }
    for (auto& entry : work.entries) {
      const std::string name = entry->request.name;
      if (!completer_.complete(table, *entry, Status{})) ++completed_twice;
      record(name, Status{});
    }
    executed.push_back(std::move(work.execution));
    return true;
  }

  [[nodiscard]] bool quiet() const { return queue_.empty() && !table.anything_queued(); }

  submit::TensorTable table;
  std::vector<negotiate::Execution> executed;
  std::map<std::string, std::vector<Outcome>> outcomes;  // by name and number of joins, in order of use
  std::vector<int> last_joined;
  int submitted = 0;
  int completed = 0;
  int completed_twice = 0;
  int refused_after_end = 0;
  int wrong_extents = 0;
  int locks = 0;
  int unlocks = 0;
  int entered = 0;  // operations that needed no order
  bool was_removed = false;
  int shut_down_by = -1;
  Status aborted;
  Status ended;  // the abort, or the departure of a rank

 private:
  struct InFlight {
    submit::Handle handle;
    std::string key;
  };
  struct Work {
    negotiate::Execution execution;
    std::vector<std::shared_ptr<submit::Entry>> entries;
    std::optional<wire::Joined> joined;
  };

  static std::size_t index_of(const Use& use) { return static_cast<std::size_t>(use.operation); }
  [[nodiscard]] std::string name_of_next(const Use& use) const {
    if (use.operation == Operation::kJoin) return submit::kJoinName;
    if (!use.name.empty()) return use.name;
    return std::string(roundelay::name_of(use.operation)) + ".noname." +
           std::to_string(unnamed_[index_of(use)] + 1);
  }
  [[nodiscard]] std::string key(const std::string& name) const {
    return name + " after " + std::to_string(epoch_) + " joins";
  }

  void finish(const std::string& name, Status status) {
    if (!completer_.complete(table, name, status)) ++completed_twice;
    record(name, std::move(status));
  }
  void record(const std::string& name, Status status) {
    ++completed;
    const auto found = in_flight_.find(name);
    auto& list = outcomes[found->second.key];
    list.back().status = std::move(status);
    in_flight_.erase(found);
    for (Outcome& late : pending_errors_[name]) list.push_back(std::move(late));
    pending_errors_.erase(name);
  }
  // Nothing will be ordered any more. Ordered operations still complete, unless `lane_too` says that the data
  // plane is gone.
  void end(const Status& why, bool lane_too) {
    ended = why;
    if (lane_too) {
      for (Work& work : queue_) {
        for (auto& entry : work.entries) completer_.complete(table, *entry, why);
      }
      queue_.clear();
    }
    std::erase_if(queue_, [](const Work& work) { return work.joined.has_value(); });
    completer_.fail_all(table, why);
    std::vector<std::string> failed;
    for (const auto& [name, use] : in_flight_) {
      if (ordered(name)) continue;
      failed.push_back(name);
      if (!handles_.done(use.handle).value_or(true)) ++completed_twice;
    }
    for (const std::string& name : failed) record(name, why);
  }
  [[nodiscard]] bool ordered(const std::string& name) const {
    for (const Work& work : queue_) {
      for (const auto& entry : work.entries) {
        if (entry->request.name == name) return true;
      }
    }
    return false;
  }

  void execute(LaneId, std::uint64_t, negotiate::Execution execution) override {
    Work work;
    for (const std::string& name : execution.names) {
      auto entry = table.extract(name);
      if (entry == nullptr) {
        ++completed_twice;
        continue;
      }
      check_extents(execution, entry->request);
      work.entries.push_back(std::move(entry));
    }
    work.execution = std::move(execution);
    queue_.push_back(std::move(work));
  }
  void check_extents(const negotiate::Execution& execution, const wire::Request& request) {
    const auto size = static_cast<std::size_t>(size_);
    const bool gathers = request.operation == Operation::kAllgather;
    if (execution.extents.size() != (gathers ? (1 + request.others.size()) * size : 0)) {
      ++wrong_extents;
      return;
    }
    if (!gathers) return;
    const auto mine = static_cast<std::size_t>(rank_);
    for (std::size_t t = 0; t <= request.others.size(); ++t) {
      const auto& shape = t == 0 ? request.shape : request.others[t - 1].shape;
      if (execution.extents[t * size + mine] != shape[0]) ++wrong_extents;
      for (const int absent : execution.absent) {
        if (execution.extents[t * size + static_cast<std::size_t>(absent)] != 0) ++wrong_extents;
      }
    }
  }
  void settle(LaneId, negotiate::Settled settled) override {
    for (std::size_t i = 0; i < settled.counters.size(); ++i)
      unnamed_[i] = std::max(unnamed_[i], settled.counters[i]);
    table.join_failed(settled.counters);
    finish(settled.name, std::move(settled.status));
  }
  void enter(submit::ScheduleLock::Names names) {
    ++entered;
    negotiate::Execution execution;
    execution.names = std::move(names);
    execute(LaneId{}, 0, std::move(execution));
  }
  void locked(LaneId, std::uint64_t) override { ++locks; }
  void unlock(LaneId, std::uint64_t from) override {
    while (auto names = table.enter_before(from)) enter(std::move(*names));
    table.end_schedule();
    ++unlocks;
  }
  void joined(LaneId, const wire::Joined& joined) override { queue_.push_back({{}, {}, joined}); }
  void removed(LaneId) override { was_removed = true; }
  void rank_left(LaneId, int by_rank) override {
    shut_down_by = by_rank;
    end(Status::aborted("rank " + std::to_string(by_rank) + " left"), false);
  }
  void abort(const Status& cause) override {
    aborted = cause;
    end(cause, true);
  }
  void ready(LaneId, const negotiate::ReadyNote&) override {}
  void clock_offset(std::int64_t) override {}
  void timeline_chunk(wire::TimelineChunk) override {}
  void timeline_switch(wire::TimelineSwitch) override {}
  void state_asked(int by_rank) override {
    negotiator.inbox().post(runtime::StateReply{by_rank, "simulated"});
  }

  const int rank_;
  const int size_;
  submit::HandleTable handles_;
  std::unique_ptr<channel::Channel> channel_;
  complete::Completer completer_;
  std::array<std::uint64_t, kOperationCount> unnamed_{};
  int epoch_ = 0;  // joins that are over on this rank
  std::map<std::string, InFlight> in_flight_;
  std::map<std::string, std::vector<Outcome>>
      pending_errors_;  // duplicates that were refused while a use was in flight
  std::deque<Work> queue_;

 public:
  runtime::Negotiator negotiator;
};

}  // namespace roundelay::sim
