// Context's implementation: owns the channel, the lanes and the engine, and routes what the control plane
// decides.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "base/abort.h"
#include "base/annotations.h"
#include "channel/channel.h"
#include "complete/completer.h"
#include "runtime/context.h"
#include "runtime/engine.h"
#include "runtime/lane.h"
#include "runtime/negotiator.h"
#include "runtime/timeline.h"
#include "runtime/timeline_file.h"
#include "submit/handles.h"

namespace roundelay::runtime {

// What context.cc has put together before a Session can start.
struct SessionParts {
  Config config;
  Placement placement;
  std::string bootstrap;
  std::string channel_name;
  std::unique_ptr<channel::Channel> channel;
  std::unique_ptr<collective::Fabric> fabric;   // of the world, on the CPU
  std::unique_ptr<TimelineFile> timeline_file;  // on rank 0; open if the timeline is on from the start
  Backend* backend = nullptr;
};

class Session final : public Context, private NegotiationSink {
 public:
  explicit Session(SessionParts parts);
  ~Session() override;

  [[nodiscard]] const Placement& placement() const override { return parts_.placement; }
  [[nodiscard]] const Config& config() const override { return parts_.config; }
  [[nodiscard]] std::string bootstrap_name() const override { return parts_.bootstrap; }
  [[nodiscard]] std::string channel_name() const override { return parts_.channel_name; }
  [[nodiscard]] std::string fabric_name() const override { return std::string(world_->fabric().name()); }

  Result<submit::Handle> submit(Submission submission) override;
  void submit_error(LaneId lane, wire::Request request) override;
  Result<bool> poll(submit::Handle handle) override;
  std::optional<Status> wait(submit::Handle handle, Deadline deadline) override;
  void flush() override;
  [[nodiscard]] std::map<std::string, std::int64_t> stats() const override;
  Timeline& timeline() override { return timeline_; }
  Status start_timeline(const std::string& path, bool mark_cycles) override;
  Status stop_timeline() override;
  void fail(const std::string& why) override;
  void shutdown() override;

 private:
  // NegotiationSink
  void execute(LaneId lane, std::uint64_t sequence, std::vector<std::string> names) override;
  void settle(LaneId lane, const std::string& name, Status status) override;
  void shut_down(LaneId lane, int by_rank) override;
  void abort(const Status& cause) override;
  void ready(LaneId lane, const negotiate::ReadyNote& note) override;
  void clock_offset(std::int64_t nanoseconds) override;
  void timeline_chunk(wire::TimelineChunk chunk) override;
  void timeline_switch(wire::TimelineSwitch to) override;

  void observe(const submit::Entry& entry);
  Deadline housekeeping(TimePoint now);
  void record_everywhere(bool mark_cycles);
  void ship_timeline(bool last);
  Status wait_until_closed(Deadline deadline) EXCLUDES(mutex_);
  void collect_last_chunks() EXCLUDES(mutex_);
  Lane* lane_of(LaneId id);

  SessionParts parts_;
  AbortToken abort_;
  Timeline timeline_;
  submit::HandleTable handles_;
  complete::Completer completer_;
  Negotiator negotiator_;
  std::unique_ptr<Lane> world_;
  Engine engine_;
  std::atomic<bool> stopped_{false};
  TimePoint next_shipping_{};  // the coordination thread's own
  Mutex shipping_;             // Timeline::drain is for one thread at a time

  Mutex mutex_;
  CondVar changed_;
  bool closed_ GUARDED_BY(mutex_) = false;  // the last order came, or communication was aborted
  int last_chunks_ GUARDED_BY(mutex_) = 0;  // on rank 0: ranks whose timeline is complete
  const std::unique_ptr<TimelineFile> file_ GUARDED_BY(mutex_);  // written on rank 0 only
};

}  // namespace roundelay::runtime
