// A simulated rank's lane of one process set: its submissions of names, and the outcome of each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "execute/completer.h"
#include "negotiate/applied.h"
#include "submit/table.h"

namespace roundelay::sim {

// One call of a rank's program.
struct Submission {
  enum class Kind : unsigned char { kOperation, kAddSet, kRemoveSet };

  std::string name{};  // empty: the table gives a name
  Operation operation = Operation::kAllreduce;
  std::vector<std::int64_t> shape{4};
  DType dtype = DType::kFloat32;
  std::vector<wire::TensorSpec> others{};
  int root = -1;
  std::string local_error{};   // not empty: this rank's checks fail
  bool may_duplicate = false;  // may be called while the submission before it is in flight
  bool cacheable = true;
  DeviceType device = DeviceType::kCpu;
  ProcessSetId set = 0;
  Kind kind = Kind::kOperation;
  std::string technique{};  // as in wire::Request
  std::vector<AgreementField> fields{};
  std::string values{};  // an agreement's
};

inline Submission join() { return {.operation = Operation::kJoin, .shape = {}}; }

// The end of one submission of a name on one rank.
struct Outcome {
  bool local = false;  // refused by this rank's own checks: the caller saw it at once
  Status status{};
  std::optional<Submission> agreement{};  // the submission, if it was one
  std::optional<Agreed> agreed{};         // its result
};

// Totals of one rank over all its lanes.
struct Counts {
  int submitted = 0;
  int completed = 0;
  int completed_twice = 0;
  int refused_after_end = 0;
  int wrong_extents = 0;
  int broken_cells = 0;
  int locks = 0;
  int unlocks = 0;
  int entered = 0;  // operations that no order named
  int entered_on_gpu = 0;
  int ended_without_rank_0 = 0;  // lanes without rank 0 that ended because rank 0 left
};

class Lane {
 public:
  // An ordered operation, or the end of a join.
  struct Work {
    negotiate::OrderedOperation ordered;
    std::vector<std::shared_ptr<submit::Entry>> entries;
    std::optional<wire::Joined> joined{};

    [[nodiscard]] bool on_gpu() const {
      return !entries.empty() && entries.front()->request.device == DeviceType::kGpu;
    }
  };

  // `handles` and `counts` outlive the lane.
  Lane(Group members, std::shared_ptr<lock::Announcements> announcements, complete::HandleTable& handles,
       Counts& counts)
      : group(std::move(members)),
        table(std::move(announcements), group.ranks),
        handles_(handles),
        completer_(handles, [](const submit::Entry&, TimePoint) {}),
        counts_(counts) {}

  // Makes one submission. False if it has to wait: its name is in flight, or this rank has joined.
  // `duplicate`: makes a submission that may be a duplicate even if its name is in flight.
  bool submit(const Submission& submission, bool duplicate) {
    if (in_flight.contains(submit::kJoinName)) return false;
    const std::string name = name_of_next(submission);
    const bool busy = in_flight.contains(name);
    if (busy && !(submission.may_duplicate && duplicate)) return !waits_for(name);
    if (submission.name.empty() && submission.operation != Operation::kJoin) ++unnamed_[index_of(submission)];
    submit::Entry entry = entry_of(submission);
    if (!submission.local_error.empty() && !busy) {
      entry.request.error = submission.local_error;
      table.add_error(entry.request);
      outcomes[key(name)].push_back({true, Status::invalid(submission.local_error)});
      return true;
    }
    auto handle = table.add(std::move(entry), handles_);
    if (handle.ok()) {
      in_flight[name] = {*handle, key(name)};
      Outcome& outcome = outcomes[key(name)].emplace_back();
      if (submission.operation == Operation::kAgreement) outcome.agreement = submission;
      ++counts_.submitted;
    } else if (!ended.ok()) {
      failed.insert(name);
      ++counts_.refused_after_end;
    } else {
      pending_errors_[name].push_back({true, handle.status()});
    }
    return true;
  }

  // True while the submission is in flight. Tells the table that a caller waits for it.
  bool waits_for(const std::string& name) {
    const auto found = in_flight.find(name);
    if (found == in_flight.end()) return false;
    table.waited_for(found->second.handle);
    return true;
  }

  // Queues an operation that was ordered or entered. An agreement completes at once; it keeps its place in
  // the sequence.
  void execute(negotiate::OrderedOperation ordered) {
    Work work;
    if (ordered.agreed) deliver(ordered);
    for (const std::string& name : ordered.names) {
      if (ordered.agreed) continue;
      auto entry = table.extract(name);
      if (entry == nullptr) {
        ++counts_.completed_twice;
        continue;
      }
      check_extents(ordered, entry->request);
      work.entries.push_back(std::move(entry));
    }
    work.ordered = std::move(ordered);
    queue.push_back(std::move(work));
  }

  // Completes the foremost operation.
  void complete_foremost() {
    Work work = std::move(queue.front());
    queue.pop_front();
    ++operations;
    for (auto& entry : work.entries) {
      const std::string name = entry->request.name;
      if (!completer_.complete(table, *entry, Status{})) ++counts_.completed_twice;
      record(name, Status{});
    }
    executed.push_back(std::move(work.ordered));
  }

  // Ends the join that is foremost in the queue.
  void complete_join() {
    const wire::Joined joined = *queue.front().joined;
    queue.pop_front();
    for (std::size_t i = 0; i < unnamed_.size(); ++i) unnamed_[i] = joined.counters.at(i);
    last_joined.push_back(joined.last_rank);
    table.joined(joined.counters);
    finish(submit::kJoinName, Status{});
    ++epoch_;
  }

  // Ends a submission that no order names.
  void fail_submission(negotiate::FailedSubmission submission) {
    for (std::size_t i = 0; i < submission.counters.size(); ++i)
      unnamed_[i] = std::max(unnamed_[i], submission.counters[i]);
    table.join_failed(submission.counters);
    finish(submission.name, std::move(submission.status));
  }

  // No order follows. What was ordered before completes, unless `lane_too`: then the data plane is gone too.
  void end(const Status& why, bool lane_too) {
    ended = why;
    if (lane_too) {
      for (Work& work : queue) {
        for (auto& entry : work.entries) completer_.complete(table, *entry, why);
      }
      queue.clear();
    }
    std::erase_if(queue, [](const Work& work) { return work.joined.has_value(); });
    completer_.fail_all(table, why);
    const std::set<std::string> still_ordered = ordered();
    std::vector<std::string> over;
    for (const auto& [name, submission] : in_flight) {
      if (still_ordered.contains(name)) continue;
      over.push_back(name);
      if (!handles_.done(submission.handle).value_or(true)) ++counts_.completed_twice;
    }
    for (const std::string& name : over) record(name, why);
  }

  // Names in the queue.
  [[nodiscard]] std::set<std::string> ordered() const {
    std::set<std::string> names;
    for (const Work& work : queue) {
      for (const auto& entry : work.entries) names.insert(entry->request.name);
    }
    return names;
  }
  [[nodiscard]] bool over() const { return removed || shutdown_by >= 0; }
  [[nodiscard]] bool quiet() const { return queue.empty() && !table.anything_queued(); }

  struct InFlight {
    complete::Handle handle;
    std::string key;  // in outcomes
  };

  const Group group;
  submit::TensorTable table;
  std::deque<Work> queue;
  std::size_t operations = 0;  // completed
  std::map<std::string, InFlight> in_flight;
  std::map<std::string, std::vector<Outcome>>
      outcomes;                  // by name and number of joins, in order of submission
  std::set<std::string> failed;  // names of which a submission failed
  std::vector<negotiate::OrderedOperation> executed;
  std::vector<int> last_joined;
  bool removing = false;
  bool removed = false;
  int shutdown_by = -1;
  Status ended;  // an abort, or a rank left

 private:
  static std::size_t index_of(const Submission& submission) {
    return static_cast<std::size_t>(submission.operation);
  }
  [[nodiscard]] std::string name_of_next(const Submission& submission) const {
    if (submission.operation == Operation::kJoin) return submit::kJoinName;
    if (!submission.name.empty()) return submission.name;
    return std::string(roundelay::name_of(submission.operation)) + ".noname." +
           std::to_string(unnamed_[index_of(submission)] + 1);
  }
  [[nodiscard]] std::string key(const std::string& name) const {
    return name + " after " + std::to_string(epoch_) + " joins";
  }
  void deliver(const negotiate::OrderedOperation& ordered) {
    if (ordered.skipped) return;
    const std::string& name = ordered.names.front();
    if (!in_flight.contains(name)) {
      ++counts_.completed_twice;
      return;
    }
    outcomes[in_flight[name].key].back().agreed = ordered.agreed;
    finish(name, Status{});
  }
  static submit::Entry entry_of(const Submission& submission) {
    submit::Entry entry;
    entry.request.name = submission.name;
    entry.request.operation = submission.operation;
    entry.request.shape = submission.shape;
    entry.request.dtype = submission.dtype;
    entry.request.others = submission.others;
    entry.request.root = submission.root;
    entry.request.device = submission.device;
    entry.request.cacheable = submission.cacheable;
    entry.request.technique = submission.technique;
    entry.request.fields = submission.fields;
    entry.values = submission.values;
    return entry;
  }

  void finish(const std::string& name, Status status) {
    if (!completer_.complete(table, name, status)) ++counts_.completed_twice;
    record(name, std::move(status));
  }
  void record(const std::string& name, Status status) {
    ++counts_.completed;
    if (!status.ok()) failed.insert(name);
    const auto found = in_flight.find(name);
    auto& list = outcomes[found->second.key];
    list.back().status = std::move(status);
    in_flight.erase(found);
    for (Outcome& late : pending_errors_[name]) list.push_back(std::move(late));
    pending_errors_.erase(name);
  }
  void check_extents(const negotiate::OrderedOperation& ordered, const wire::Request& request) {
    const auto size = static_cast<std::size_t>(group.size());
    const bool gathers = request.operation == Operation::kAllgather;
    if (ordered.extents.size() != (gathers ? (1 + request.others.size()) * size : 0)) {
      ++counts_.wrong_extents;
      return;
    }
    if (!gathers) return;
    const auto mine = static_cast<std::size_t>(group.index);
    for (std::size_t t = 0; t <= request.others.size(); ++t) {
      const auto& shape = t == 0 ? request.shape : request.others[t - 1].shape;
      if (ordered.extents[t * size + mine] != shape[0]) ++counts_.wrong_extents;
      for (const int absent : ordered.absent) {
        if (ordered.extents[t * size + static_cast<std::size_t>(absent)] != 0) ++counts_.wrong_extents;
      }
    }
  }

  complete::HandleTable& handles_;
  execute::Completer completer_;
  Counts& counts_;
  std::array<std::uint64_t, kOperationCount> unnamed_{};
  int epoch_ = 0;  // joins whose end this rank has seen
  std::map<std::string, std::vector<Outcome>>
      pending_errors_;  // refused duplicates of a submission in flight
};

}  // namespace roundelay::sim
