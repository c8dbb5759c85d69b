// One simulated rank: a negotiator over its end of the inproc channel, lanes of process sets, and a GPU.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "channel/channel.h"
#include "control/negotiator.h"
#include "gpu/gpu_sequencer.h"
#include "tests/cpp/sim/gpus.h"
#include "tests/cpp/sim/lane.h"

namespace roundelay::sim {

class Rank final : public control::NegotiationSink {
 public:
  // `heeds_tickets`: false enqueues an operation on the GPU as soon as it is ordered.
  Rank(int rank, int size, std::unique_ptr<channel::Channel> channel,
       const negotiate::CoordinatorOptions& options, Gpus& gpus, bool heeds_tickets)
      : rank_(rank),
        heeds_tickets_(heeds_tickets),
        gpus_(gpus),
        channel_(std::move(channel)),
        sequencer_([] {}),
        negotiator(*channel_, rank, size, options, *this) {}

  void open(LaneId id, const Group& group, std::shared_ptr<lock::Announcements> announcements) {
    auto lane = std::make_unique<Lane>(group, std::move(announcements), handles_, counts);
    negotiator.add_lane(id, group, lane->table);
    lanes.emplace(id, std::move(lane));
  }
  // Removes the process set: the lane closes as soon as it can.
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
  [[nodiscard]] Lane* find(LaneId id) const {
    const auto found = lanes.find(id);
    return found == lanes.end() ? nullptr : found->second.get();
  }
  // The lane of the world.
  [[nodiscard]] Lane& world() const { return *find(LaneId{}); }

  // The lane's part: the next operation that needs no order.
  bool enter(LaneId id) {
    auto entered = find(id)->table.enter();
    if (entered) enter(id, std::move(*entered));
    return entered.has_value();
  }
  // The lane's part: the foremost operation completes, or is enqueued on the GPU. False if it has to wait.
  bool run_lane(LaneId id) {
    Lane& lane = *find(id);
    if (lane.queue.empty()) return false;
    if (!lane.queue.front().joined) return carry_out(id, lane);
    lane.complete_join();
    return true;
  }

  std::map<LaneId, std::unique_ptr<Lane>> lanes;
  std::vector<negotiate::GpuTicket> taken;  // in the order in which it enqueued them
  Counts counts;
  Status aborted;

 private:
  // Operations of the CPU complete when all participants have come.
  bool carry_out(LaneId id, Lane& lane) {
    const Lane::Work& work = lane.queue.front();
    const negotiate::OrderedOperation& ordered = work.ordered;
    if (ordered.ticket && heeds_tickets_ && !sequencer_.may_go(ordered.ticket->previous)) return false;
    const OperationId operation{id, lane.operations};
    const std::size_t participants = lane.group.ranks.size() - ordered.absent.size();
    if (work.on_gpu()) {
      gpus_.enqueue(operation, rank_, participants);
    } else if (!ordered.skipped && !gpus_.meet(operation, rank_, participants)) {
      return false;
    }
    if (ordered.ticket) {
      taken.push_back(*ordered.ticket);
      sequencer_.gone(ordered.ticket->number);
    }
    lane.complete_foremost();
    return true;
  }

  void enter(LaneId id, lock::Entered entered) {
    if (!entered.fault.ok()) ++counts.broken_cells;
    negotiate::OrderedOperation ordered;
    ordered.names = std::move(entered.names);
    ordered.agreed = std::move(entered.agreed);
    find(id)->execute(std::move(ordered));
    ++counts.entered;
    counts.entered_on_gpu += find(id)->queue.back().on_gpu() ? 1 : 0;
  }

  void ordered(LaneId, std::uint64_t) override {}
  void execute(LaneId id, std::uint64_t, negotiate::OrderedOperation ordered) override {
    find(id)->execute(std::move(ordered));
  }
  void fail_submission(LaneId id, negotiate::FailedSubmission failed) override {
    find(id)->fail_submission(std::move(failed));
  }
  void locked(LaneId, std::uint64_t) override { ++counts.locks; }
  void unlock(LaneId id, std::uint64_t from) override {
    submit::TensorTable& table = find(id)->table;
    while (auto entered = table.enter_before(from)) enter(id, std::move(*entered));
    table.end_schedule();
    ++counts.unlocks;
  }
  void joined(LaneId id, const wire::Joined& joined) override { find(id)->queue.push_back({{}, {}, joined}); }
  void removed(LaneId id) override { find(id)->removed = true; }
  void rank_left(LaneId id, int by_rank) override {
    Lane& lane = *find(id);
    lane.shutdown_by = by_rank;
    counts.ended_without_rank_0 += by_rank == 0 && lane.group.ranks.front() != 0 ? 1 : 0;
    lane.end(Status::aborted("rank " + std::to_string(by_rank) + " left"), false);
  }
  void abort(const Status& cause) override {
    aborted = cause;
    for (auto& [id, lane] : lanes) lane->end(cause, true);
  }
  void ready(LaneId, const negotiate::ReadyNote&) override {}
  void clock_offset(std::int64_t) override {}
  void timeline_chunk(wire::TimelineChunk) override {}
  void timeline_switch(wire::TimelineSwitch) override {}
  void state_asked(int by_rank) override {
    negotiator.inbox().post(control::StateReply{by_rank, "simulated"});
  }

  const int rank_;
  const bool heeds_tickets_;
  Gpus& gpus_;
  complete::HandleTable handles_;
  std::unique_ptr<channel::Channel> channel_;
  gpu::GpuSequencer sequencer_;

 public:
  control::Negotiator negotiator;
};

}  // namespace roundelay::sim
