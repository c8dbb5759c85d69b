// The implementation of Context: owns all parts of one init, connects them, and ends them in order.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/abort.h"
#include "collective/point_to_point/point_to_point.h"
#include "complete/handles.h"
#include "control/inquiry.h"
#include "control/negotiator.h"
#include "execute/completer.h"
#include "execute/lane.h"
#include "runtime/context.h"
#include "runtime/session/engine.h"
#include "runtime/session/job_timeline.h"
#include "runtime/session/lane_factory.h"
#include "runtime/session/lane_threads.h"
#include "runtime/session/open_lanes.h"
#include "runtime/session/process_sets.h"
#include "runtime/session/session_parts.h"
#include "runtime/session/set_changes.h"
#include "runtime/session/user_operations.h"

namespace roundelay::runtime {

// runtime/context.h describes the functions of Context, control/negotiation_sink.h those of
// NegotiationSink.
class Session final : public Context, private control::NegotiationSink {
 public:
  // Starts the threads if there are several ranks. Only the pointers whose comments allow that may be null in
  // `parts`.
  explicit Session(SessionParts parts);
  ~Session() override { shutdown(); }

  [[nodiscard]] const bootstrap::RankInfo& rank_info() const override { return parts_.rank_info; }
  [[nodiscard]] const bootstrap::Topology& topology() const override { return parts_.topology; }
  [[nodiscard]] const AllreduceWays& allreduce_ways() const override { return parts_.allreduce_ways; }
  [[nodiscard]] const Config& config() const override { return parts_.config; }
  [[nodiscard]] std::string bootstrap_name() const override { return parts_.bootstrap; }
  [[nodiscard]] std::string channel_name() const override { return parts_.channel_name; }
  [[nodiscard]] std::string fabric_name() const override { return std::string(world_->fabric().name()); }

  Result<complete::Handle> submit(submit::Arguments arguments, Route route) override {
    return operations_.submit(std::move(arguments), route);
  }
  Result<complete::Handle> call(submit::Arguments arguments, bool blocking) override {
    return operations_.call(std::move(arguments), blocking);
  }
  [[nodiscard]] Status fault() const override { return abort_.raised() ? abort_.cause() : Status(); }
  [[nodiscard]] int left_rank() const override { return world_->late_peers().left_rank(); }
  std::unique_ptr<collective::PointToPoint> take_messages() override { return std::move(parts_.messages); }
  Result<RegionPtr> make_region(ProcessSetId process_set, std::uint64_t key, std::size_t bytes,
                                int gpu) override {
    return operations_.make_region(process_set, key, bytes, gpu);
  }
  void submit_error(ProcessSetId process_set, wire::Request request) override {
    operations_.submit_error(process_set, std::move(request));
  }
  Result<complete::Handle> submit_new_set(std::vector<int> ranks) override {
    return set_changes_.submit_new(ranks);
  }
  Result<ProcessSetId> make_process_set(const std::vector<int>& ranks) override {
    return set_changes_.make(ranks);
  }
  Result<complete::Handle> submit_removal(ProcessSetId id) override {
    return set_changes_.submit_removal(id);
  }
  Result<complete::Handle> submit_no_change() override { return set_changes_.submit_none(); }
  Status drop_process_set(ProcessSetId id) override { return set_changes_.remove(id); }
  Result<std::vector<int>> level_sizes(ProcessSetId id, DeviceType device) override;
  Result<bool> poll(complete::Handle handle) override { return operations_.poll(handle); }
  std::optional<Status> wait(complete::Handle handle, Deadline deadline) override {
    return operations_.wait(handle, deadline);
  }
  void end_linger() override { operations_.end_linger(); }
  void begin_wait() override { handles_.begin_wait(); }
  void end_wait() override;
  [[nodiscard]] std::map<std::string, std::int64_t> stats() const override;
  timeline::Timeline& timeline() override { return timeline_.events(); }
  Status start_timeline(const std::string& path, bool mark_cycles) override;
  Status stop_timeline() override;
  void fail(const std::string& why) override;
  void shutdown() override;

 private:
  // NegotiationSink
  void ordered(LaneId id, std::uint64_t sequence) override;
  void execute(LaneId lane, std::uint64_t sequence, negotiate::OrderedOperation ordered) override;
  void fail_submission(LaneId lane, negotiate::FailedSubmission failed) override;
  void locked(LaneId lane, std::uint64_t sequence) override;
  void unlock(LaneId lane, std::uint64_t from) override;
  void joined(LaneId lane, const wire::Joined& joined) override;
  void removed(LaneId lane) override { open_lanes_.close(lane); }
  void rank_left(LaneId lane, int by_rank) override;
  void abort(const Status& cause) override;
  void ready(LaneId lane, const negotiate::ReadyNote& note) override;
  void clock_offset(std::int64_t nanoseconds) override;
  void timeline_chunk(wire::TimelineChunk chunk) override { timeline_.on_chunk(chunk); }
  void timeline_switch(wire::TimelineSwitch to) override { timeline_.on_switch(to); }
  void state_asked(int by_rank) override { inquiry_.asked(by_rank, steady_now()); }

  // Starts the timeline of all ranks, into the file that is open.
  void record_everywhere(bool mark_cycles);
  // Stops it on all ranks, and waits until the file has what they have recorded.
  void stop_recording();
  // Tells all ranks that communication is over because of `why`.
  void report_fault(const std::string& why);
  // Makes all ranks leave in order: waits for the last orders, and for the work that was ordered.
  void leave();
  void fail_all(const Status& why);

  SessionParts parts_;
  AbortToken abort_;
  control::Negotiator negotiator_;
  JobTimeline timeline_;
  complete::HandleTable handles_;
  execute::Completer completer_;
  LaneFactory lane_factory_;
  ProcessSets sets_;
  OpenLanes open_lanes_;
  const std::shared_ptr<execute::Lane> world_;
  LaneThreads lane_threads_;
  Engine engine_;
  control::Inquiry inquiry_;
  UserOperations operations_;
  SetChanges set_changes_;
  std::atomic<bool> stopped_{false};  // shutdown() was called
};

}  // namespace roundelay::runtime
