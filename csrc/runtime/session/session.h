// Context's implementation: owns the channel, the lanes and the engine, and routes what the control plane
// decides.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/abort.h"
#include "base/annotations.h"
#include "channel/channel.h"
#include "complete/completer.h"
#include "runtime/context.h"
#include "runtime/lane/lane.h"
#include "runtime/session/engine.h"
#include "runtime/session/inquiry.h"
#include "runtime/session/negotiator.h"
#include "runtime/session/neighbours.h"
#include "runtime/session/process_sets.h"
#include "submit/handles.h"
#include "timeline/file.h"
#include "timeline/timeline.h"

namespace roundelay::runtime {

// What context.cc has put together before a Session can start.
struct SessionParts {
  Config config;
  bootstrap::RankInfo rank_info;
  std::string bootstrap;
  std::string channel_name;
  std::unique_ptr<channel::Channel> channel;
  std::unique_ptr<collective::Fabric> fabric;  // of the world, on the CPU
  // Of a process set: collective over its members, bounded by the start timeout.
  std::function<Result<std::unique_ptr<collective::Fabric>>(const Group&)> make_fabric;
  std::unique_ptr<timeline::TimelineFile>
      timeline_file;  // on rank 0; open if the timeline is on from the start
  Backend* backend = nullptr;
  GpuParts gpu{};
  bool ranks_may_share_gpu = false;
  std::vector<Neighbour> neighbours{};
  std::shared_ptr<Whereabouts> whereabouts{};
};

// Of a job with so many ranks, in bytes; 0: nothing is fused.
std::size_t fusion_threshold(const Config& config, int ranks);

class Session final : public Context, private NegotiationSink {
 public:
  explicit Session(SessionParts parts);
  ~Session() override;

  [[nodiscard]] const bootstrap::RankInfo& rank_info() const override { return parts_.rank_info; }
  [[nodiscard]] const Config& config() const override { return parts_.config; }
  [[nodiscard]] std::string bootstrap_name() const override { return parts_.bootstrap; }
  [[nodiscard]] std::string channel_name() const override { return parts_.channel_name; }
  [[nodiscard]] std::string fabric_name() const override { return std::string(world_->fabric().name()); }

  Result<submit::Handle> submit(Submission submission) override;
  Result<RegionPtr> make_region(ProcessSetId process_set, std::uint64_t key, std::size_t bytes,
                                int gpu) override;
  void submit_error(ProcessSetId process_set, wire::Request request) override;
  Result<submit::Handle> submit_new_set(std::vector<int> ranks) override;
  Result<ProcessSetId> make_process_set(const std::vector<int>& ranks) override EXCLUDES(changing_);
  Result<submit::Handle> submit_removal(ProcessSetId id) override;
  Status drop_process_set(ProcessSetId id) override EXCLUDES(changing_);
  Result<std::vector<int>> ranks_of(ProcessSetId id) override;
  Result<bool> poll(submit::Handle handle) override;
  std::optional<Status> wait(submit::Handle handle, Deadline deadline) override;
  void begin_wait() override { handles_.begin_wait(); }
  void end_wait() override;
  void flush() override;
  [[nodiscard]] std::map<std::string, std::int64_t> stats() const override;
  timeline::Timeline& timeline() override { return timeline_; }
  Status start_timeline(const std::string& path, bool mark_cycles) override;
  Status stop_timeline() override;
  void fail(const std::string& why) override;
  void shutdown() override;

 private:
  // NegotiationSink
  void execute(LaneId lane, std::uint64_t sequence, negotiate::Execution execution) override;
  void settle(LaneId lane, negotiate::Settled settled) override;
  void locked(LaneId lane, std::uint64_t sequence) override;
  void unlock(LaneId lane, std::uint64_t from) override;
  void joined(LaneId lane, const wire::Joined& joined) override;
  void removed(LaneId lane) override;
  void rank_left(LaneId lane, int by_rank) override;
  void abort(const Status& cause) override;
  void ready(LaneId lane, const negotiate::ReadyNote& note) override;
  void clock_offset(std::int64_t nanoseconds) override;
  void timeline_chunk(wire::TimelineChunk chunk) override;
  void timeline_switch(wire::TimelineSwitch to) override;
  void state_asked(int by_rank) override { inquiry_.asked(by_rank, steady_now()); }

  void observe(const submit::Entry& entry, TimePoint now);
  Deadline housekeeping(TimePoint now);
  void record_everywhere(bool mark_cycles);
  void ship_timeline(bool last);
  Status wait_until_closed(Deadline deadline) EXCLUDES(mutex_);
  void collect_last_chunks() EXCLUDES(mutex_);
  void close(LaneId lane) EXCLUDES(mutex_);
  [[nodiscard]] bool any_work() const;
  [[nodiscard]] bool anything_to_flush() const;
  void fail_all(const Status& why);
  static void fail_what_is_left(Lane& lane);
  void report_fault(const std::string& why);

  std::string wrong_gpu(int index);
  Result<submit::Handle> submit_to(Lane& lane, submit::Entry entry, bool blocking = false);
  void submit_error_to(Lane& lane, wire::Request request);
  Result<submit::Handle> announce(wire::Request request, const std::string& wrong);

  // session_sets.cc
  std::shared_ptr<Lane> make_lane(LaneId id, std::unique_ptr<collective::Fabric> fabric);
  // In the thread that fabrics are made and freed in.
  void where_fabrics_live(const std::function<void()>& task);
  Status open_lane(ProcessSet& set);
  Status finish_lane(const Lane& lane, const ProcessSet& set) EXCLUDES(mutex_);
  void close_lane(ProcessSet& set, const Status& why) EXCLUDES(mutex_);
  Status agree(const ProcessSet& set, const Status& mine);
  Status carry_out(wire::Request request, std::vector<std::int64_t>& words, Deadline deadline);

  SessionParts parts_;
  AbortToken abort_;
  GpuSequencer sequencer_;
  timeline::Timeline timeline_;
  submit::HandleTable handles_;
  complete::Completer completer_;
  Negotiator negotiator_;
  ProcessSets sets_;
  const std::shared_ptr<Lane> world_;
  Engine engine_;
  Inquiry inquiry_;
  Mutex changing_;  // held while a process set is added or removed, before all other locks
  std::atomic<bool> stopped_{false};
  std::atomic<int> gpu_{-1};   // the process's, once it has come into use
  TimePoint next_shipping_{};  // the coordination thread's own
  Mutex shipping_;             // Timeline::drain is for one thread at a time

  Mutex mutex_;
  CondVar changed_;
  bool over_ GUARDED_BY(mutex_) = false;      // communication was aborted
  std::set<LaneId> open_ GUARDED_BY(mutex_);  // lanes whose last order has not come
  int last_chunks_ GUARDED_BY(mutex_) = 0;    // on rank 0: ranks whose timeline is complete
  const std::unique_ptr<timeline::TimelineFile> file_ GUARDED_BY(mutex_);  // written on rank 0 only
};

}  // namespace roundelay::runtime
