// One simulated rank with lanes of several process sets, which work on the CPU and on its GPU.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "channel/channel.h"
#include "complete/completer.h"
#include "runtime/gpu/gpu_sequencer.h"
#include "runtime/session/negotiator.h"
#include "submit/table.h"
#include "tests/cpp/announced_words.h"
#include "tests/cpp/sim/gpus.h"

namespace roundelay::sim {

class SetsRank final : public runtime::NegotiationSink {
 public:
  struct Work {
    negotiate::Execution execution;
    std::vector<std::shared_ptr<submit::Entry>> entries;
    std::optional<wire::Joined> joined{};
  };
  struct Lane {
    Lane(Group members, std::shared_ptr<AnnouncedWords::Words> words)
        : group(std::move(members)), table(std::make_shared<AnnouncedWords>(std::move(words), group.index)) {}

    Group group;
    submit::TensorTable table;
    std::deque<Work> queue;
    std::size_t operations = 0;  // how many were begun
    std::map<std::string, submit::Handle> in_flight;
    std::set<std::string> failed;
    bool removing = false;
    bool removed = false;
    int shut_down_by = -1;
    [[nodiscard]] std::set<std::string> ordered() const {
      std::set<std::string> names;
      for (const Work& work : queue) {
        for (const auto& entry : work.entries) names.insert(entry->request.name);
      }
      return names;
    }
    [[nodiscard]] bool over() const { return removed || shut_down_by >= 0; }
  };

  // `heeds`: false if the rank enqueues operations on its GPU as orders come, without waiting for their turn.
  SetsRank(int rank, int size, std::unique_ptr<channel::Channel> channel,
           negotiate::CoordinatorOptions options, Gpus& gpus, bool heeds)
      : rank_(rank),
        heeds_(heeds),
        gpus_(gpus),
        channel_(std::move(channel)),
        completer_(handles_, [](const submit::Entry&, TimePoint) {}),
        sequencer_([] {}),
        negotiator(*channel_, rank, size, options, *this) {}

  void open(LaneId id, Group group, std::shared_ptr<AnnouncedWords::Words> words) {
    auto& lane = *lanes.emplace(id, std::make_unique<Lane>(group, std::move(words))).first->second;
    negotiator.add_lane(id, group, lane.table);
  }
  // The rank removes the set: the lane is closed when it has got its last order and done its work.
  void begin_removal(LaneId id) {
    find(id)->removing = true;
    negotiator.begin_removal(id);
  }
  bool close_removed() {
    for (const auto& [id, lane] : lanes) {
      if (!lane->removing || !lane->queue.empty() || (!lane->over() && aborted.ok())) continue;
      close(id);
      return true;
    }
    return false;
  }
  void close(LaneId id) {
    negotiator.remove_lane(id);
    lanes.erase(id);
  }
  [[nodiscard]] Lane* find(LaneId id) {
    const auto found = lanes.find(id);
    return found == lanes.end() ? nullptr : found->second.get();
  }

  // Returns false if the use has to wait because its name is in flight.
  bool submit(LaneId id, wire::Request request) {
    Lane& lane = *find(id);
    const std::string name = request.operation == Operation::kJoin ? submit::kJoinName : request.name;
    if (waits_for(lane, name)) return false;
    submit::Entry entry;
    entry.request = std::move(request);
    auto handle = lane.table.add(std::move(entry), handles_);
    if (handle.ok()) {
      lane.in_flight[name] = *handle;
      ++submitted;
    } else {
      lane.failed.insert(name);
      ++refused;
    }
    return true;
  }
  static bool waits_for(Lane& lane, const std::string& name) {
    const auto found = lane.in_flight.find(name);
    if (found == lane.in_flight.end()) return false;
    lane.table.waited_for(found->second);
    return true;
  }

  // Acts as the lane: begins the next operation that needs no order. Returns false if there is none.
  bool enter(LaneId id) {
    auto names = find(id)->table.enter();
    if (names) enter(id, std::move(*names));
    return names.has_value();
  }

  // Acts as the lane: completes or enqueues its foremost operation. Returns false if that is not possible.
  bool run_lane(LaneId id) {
    Lane& lane = *find(id);
    if (lane.queue.empty()) return false;
    Work& work = lane.queue.front();
    if (work.joined) {
      lane.table.joined(work.joined->counters);
      finish(lane, submit::kJoinName);
    } else if (!carry_out(id, lane, work)) {
      return false;
    }
    lane.queue.pop_front();
    return true;
  }

  std::map<LaneId, std::unique_ptr<Lane>> lanes;
  std::vector<negotiate::GpuTicket> taken;  // in the order of enqueueing
  int submitted = 0;
  int completed = 0;
  int completed_twice = 0;
  int refused = 0;      // the lane was over
  int turns_ended = 0;  // lanes without rank 0 that ended because it left
  int entered_on_gpu = 0;
  Status aborted;

 private:
  bool carry_out(LaneId id, Lane& lane, Work& work) {
    const negotiate::Execution& execution = work.execution;
    if (execution.ticket && heeds_ && !sequencer_.may_go(execution.ticket->previous)) return false;
    const OperationId operation{id, lane.operations};
    const std::size_t participants = lane.group.ranks.size() - execution.absent.size();
    const bool on_gpu = !work.entries.empty() && work.entries.front()->request.device == DeviceType::kGpu;
    if (on_gpu) {
      gpus_.enqueue(operation, rank_, participants);
    } else if (!execution.skipped && !gpus_.meet(operation, rank_, participants)) {
      return false;
    }
    ++lane.operations;
    if (execution.ticket) {
      taken.push_back(*execution.ticket);
      sequencer_.gone(execution.ticket->number);
    }
    for (const auto& entry : work.entries) {
      const std::string name = entry->request.name;
      if (!completer_.complete(lane.table, *entry, Status{})) ++completed_twice;
      record(lane, name);
    }
    return true;
  }

  void finish(Lane& lane, const std::string& name) {
    if (!completer_.complete(lane.table, name, Status{})) ++completed_twice;
    record(lane, name);
  }
  void record(Lane& lane, const std::string& name) {
    completed += static_cast<int>(lane.in_flight.erase(name));
  }
  // Nothing will be ordered any more. Ordered operations go on, unless `lane_too` says that communication is
  // over.
  void end(Lane& lane, const Status& why, bool lane_too) {
    if (lane_too) {
      for (Work& work : lane.queue) {
        for (auto& entry : work.entries) completer_.complete(lane.table, *entry, why);
      }
      lane.queue.clear();
    }
    const auto ordered = lane.ordered();
    std::erase_if(lane.queue, [](const Work& work) { return work.joined.has_value(); });
    completer_.fail_all(lane.table, why);
    completed += static_cast<int>(std::erase_if(lane.in_flight, [&](const auto& use) {
      if (ordered.contains(use.first)) return false;
      lane.failed.insert(use.first);
      return true;
    }));
  }

  void enter(LaneId id, submit::ScheduleLock::Names names) {
    negotiate::Execution execution;
    execution.names = std::move(names);
    execute(id, 0, std::move(execution));
    const Work& work = find(id)->queue.back();
    entered_on_gpu += work.entries.front()->request.device == DeviceType::kGpu ? 1 : 0;
  }
  void execute(LaneId id, std::uint64_t, negotiate::Execution execution) override {
    Lane& lane = *find(id);
    Work work;
    for (const std::string& name : execution.names) {
      auto entry = lane.table.extract(name);
      if (entry == nullptr) {
        ++completed_twice;
        continue;
      }
      work.entries.push_back(std::move(entry));
    }
    work.execution = std::move(execution);
    lane.queue.push_back(std::move(work));
  }
  void settle(LaneId id, negotiate::Settled settled) override {
    Lane& lane = *find(id);
    lane.table.join_failed(settled.counters);
    lane.failed.insert(settled.name);
    finish(lane, settled.name);
  }
  void locked(LaneId, std::uint64_t) override {}
  void unlock(LaneId id, std::uint64_t from) override {
    submit::TensorTable& table = find(id)->table;
    while (auto names = table.enter_before(from)) enter(id, std::move(*names));
    table.end_schedule();
  }
  void joined(LaneId id, const wire::Joined& joined) override { find(id)->queue.push_back({{}, {}, joined}); }
  void removed(LaneId id) override { find(id)->removed = true; }
  void rank_left(LaneId id, int by_rank) override {
    Lane& lane = *find(id);
    lane.shut_down_by = by_rank;
    turns_ended += by_rank == 0 && lane.group.ranks.front() != 0 ? 1 : 0;
    end(lane, Status::aborted("rank " + std::to_string(by_rank) + " left"), false);
  }
  void abort(const Status& cause) override {
    aborted = cause;
    for (auto& [id, lane] : lanes) end(*lane, cause, true);
  }
  void ready(LaneId, const negotiate::ReadyNote&) override {}
  void clock_offset(std::int64_t) override {}
  void timeline_chunk(wire::TimelineChunk) override {}
  void timeline_switch(wire::TimelineSwitch) override {}
  void state_asked(int by_rank) override {
    negotiator.inbox().post(runtime::StateReply{by_rank, "simulated"});
  }

  const int rank_;
  const bool heeds_;
  Gpus& gpus_;
  submit::HandleTable handles_;
  std::unique_ptr<channel::Channel> channel_;
  complete::Completer completer_;
  runtime::GpuSequencer sequencer_;

 public:
  runtime::Negotiator negotiator;
};

}  // namespace roundelay::sim
