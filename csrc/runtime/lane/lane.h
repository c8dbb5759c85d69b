// A lane carries out the orders of one (process set, device), in sequence, two deep: the next fused operation
// is packed while the one before it is on the wire.
//
// A step function: whoever holds the lane's token calls step(). Entries that were ordered belong to the lane
// until it completes them, on every path: after an abort it fails them, and only then are the user's buffers
// free.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/abort.h"
#include "base/annotations.h"
#include "collective/fabric.h"
#include "complete/completer.h"
#include "negotiate/participant.h"
#include "runtime/gpu/gpu_sequencer.h"
#include "runtime/lane/batch.h"
#include "runtime/lane/device_buffers.h"
#include "runtime/lane/gpu_buffers.h"
#include "runtime/lane/progress_token.h"
#include "submit/table.h"
#include "timeline/timeline.h"
#include "wire/messages.h"

namespace roundelay::runtime {

// Where tensors on a GPU may come.
struct LaneGpu {
  GpuParts parts;
  GpuSequencer* sequencer;
  GpuFabricOptions fabric;
};

struct LaneOptions {
  Duration progress_timeout = std::chrono::seconds(30);
  // A batch of several tensors has at most so many bytes, padding included; larger buffers are given back.
  std::size_t fusion_threshold = 0;
  bool schedule_lock = false;  // where the fabric lets members announce what they submit
  std::optional<LaneGpu> gpu{};
};

struct LaneCounters {
  std::atomic<std::int64_t> operations{0}, tensors{0}, bytes{0}, fused_tensors{0}, locked_operations{0};
  std::atomic<std::int64_t> gpu_operations{0};
  std::atomic<std::int64_t> bytes_staged{0}, sleeps{0}, wakes{0};  // sums alone: fabrics count these

  void add(const LaneCounters& other) {
    operations += other.operations;
    tensors += other.tensors;
    bytes += other.bytes;
    fused_tensors += other.fused_tensors;
    bytes_staged += other.bytes_staged;
    sleeps += other.sleeps;
    wakes += other.wakes;
    locked_operations += other.locked_operations;
    gpu_operations += other.gpu_operations;
  }
};

class Lane {
 public:
  // What the lane tells the control plane; called by the token's holder.
  struct Faults {
    std::function<void(wire::Stuck)>
        stuck;  // a missed progress deadline: who is to blame is for the watchdog
    std::function<void(wire::Abort)> fault;  // anything else that ends communication
    std::function<void()> news{};            // of the schedule lock: it is to end, or left work
  };

  Lane(LaneId id, std::unique_ptr<collective::Fabric> fabric, complete::Completer& completer,
       timeline::Timeline& timeline, const AbortToken& abort, LaneOptions options, Faults faults);
  ~Lane();

  [[nodiscard]] LaneId id() const { return id_; }
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] const collective::Fabric& fabric() const { return *fabric_; }
  // In the thread that fabrics are freed in, when no work is left and none will come. Others may hold the
  // lane for longer, and step() it.
  void close_fabric();
  // From any thread.
  [[nodiscard]] Result<RegionPtr> make_region(std::uint64_t key, std::size_t bytes) const {
    return make_region_(key, bytes);
  }
  [[nodiscard]] submit::TensorTable& table() { return table_; }
  [[nodiscard]] ProgressToken& token() { return token_; }
  // False: only the background thread may hold the token (MPI below THREAD_MULTIPLE).
  [[nodiscard]] bool caller_may_drive() const { return fabric_->any_thread(); }

  // By the holder of the negotiation token, in order. Wakes nobody: the caller may mean to drive the lane
  // itself.
  void enqueue(std::uint64_t sequence, const negotiate::Execution& execution) EXCLUDES(mutex_);
  // By the holder of the lane's token. Never blocks; false if nothing moved.
  bool step() EXCLUDES(mutex_);
  // After a step in which nothing moved, by the same holder: how to pass the time until the next, or wake().
  collective::Nap idle(collective::Backoff& backoff);

  // The schedule lock: operations come here by announcements too, and whoever holds the lane's token takes
  // them. By the holder of the negotiation token:
  void begin_schedule(std::uint64_t sequence) EXCLUDES(entering_);
  void end_schedule(std::uint64_t from) EXCLUDES(entering_);
  // From any thread: this lane's next operation needs nobody's order.
  [[nodiscard]] bool goes_by_schedule() const { return table_.schedule_open(); }
  // All have announced the next one.
  [[nodiscard]] bool may_enter() const { return table_.may_enter(); }
  // From a caller that will look itself for what all have announced: peers need not wake the lane's thread.
  void spare_thread() {
    if (announcements_ && goes_by_schedule()) announcements_->spare_background(true);
  }
  // ... until it looks no more.
  void mind_schedule();

  // Ordered and not complete. After an abort: until all of it has been failed.
  [[nodiscard]] bool has_work() const { return work_.load(std::memory_order_acquire) > 0; }
  // Something is enqueued to a GPU and not known to be done: step() is to look at it now and then.
  [[nodiscard]] bool watches_device() const { return watches_device_.load(std::memory_order_acquire); }
  // Sleeps until wake(), the deadline or, by schedule, until all have announced the next operation; not at
  // all while there is work. The lane's thread only.
  void wait_for_work(Deadline deadline) EXCLUDES(mutex_);
  void wake() EXCLUDES(mutex_);

  // Something was submitted; whether that happened since the last take_news(). From any thread. Who takes
  // news sees to it that the negotiator steps: nobody else may have been woken for it.
  void note_news() { news_.store(true, std::memory_order_release); }
  [[nodiscard]] bool take_news() { return news_.exchange(false, std::memory_order_acq_rel); }

  [[nodiscard]] const LaneCounters& counters() const { return counters_; }
  // With its fabric's.
  void add_counters(LaneCounters& sum) const;

 private:
  using Batches = std::deque<std::unique_ptr<Batch>>;
  using Entries = std::vector<std::shared_ptr<submit::Entry>>;

  bool enter() EXCLUDES(entering_);
  void run_scheduled(std::vector<std::string> names) REQUIRES(entering_);
  void wait_for_announcements(Deadline deadline) EXCLUDES(mutex_);
  std::optional<Deadline> look_after_schedule();
  Entries extract(const std::vector<std::string>& names);
  Batches cut(const Entries& entries, const negotiate::Execution& execution) const;
  bool test_running();
  bool start_prepared();
  void start(Batch& batch);
  bool prepare_next() EXCLUDES(mutex_);
  [[nodiscard]] DeviceBuffers& buffers_of(const Batch& batch) const;
  Status prepare(Batch& batch);
  Status finish(Batch& batch);
  void conclude(std::unique_ptr<Batch> batch, TimePoint reduced) EXCLUDES(mutex_);
  // The batch is over; an entry is complete when its last one is.
  void release(Batch& batch, const Status& outcome);
  void fail(Batch& batch, const Status& why);
  bool fail_everything() EXCLUDES(mutex_);
  void on_error(const Batch& batch, const Status& why);
  [[nodiscard]] std::string describe(const Batch& batch) const;
  [[nodiscard]] int culprit(const Batch& batch) const;
  void forget_work(std::size_t batches);

  // lane_record.cc
  void record(const Batch& batch, TimePoint reduced);
  void record_copy(const Batch& batch, std::string_view what, TimePoint begin);
  void record_collective(const Batch& batch, timeline::Track track, TimePoint begin, TimePoint end);
  void record_on_device(const Batch& batch);

  // lane_gpu.cc
  [[nodiscard]] bool may_go(const Batch& batch) const;
  void leave_ticket(const Batch& batch);
  Status hand_over(Batch& batch);
  [[nodiscard]] Duration patience(const Batch& batch) const;
  void watch(std::unique_ptr<Batch> batch) EXCLUDES(mutex_);
  void look_at_device();
  bool give_up_device(bool enqueueing);

  // A batch that the device has not done, or is not known to have done.
  struct Enqueued {
    std::unique_ptr<Batch> batch;
    Deadline deadline;  // from when everything before it was done; never: that has not been yet
  };

  const LaneId id_;
  const Group group_;
  const RegionMaker make_region_;
  const std::shared_ptr<const collective::FabricWork> fabric_work_;
  // Not touched without work, but for being woken and closed.
  std::unique_ptr<collective::Fabric> fabric_;
  complete::Completer& completer_;
  timeline::Timeline& timeline_;
  const AbortToken& abort_;
  const LaneOptions options_;
  const Faults faults_;
  const std::shared_ptr<Announcements> announcements_;  // null: no schedule lock
  submit::TensorTable table_;
  ProgressToken token_;
  LaneCounters counters_;

  // The token holder's own.
  std::unique_ptr<Batch> running_;
  std::unique_ptr<Batch> prepared_;
  bool faulted_ = false;  // reported; waiting for the abort word
  const std::unique_ptr<HostBuffers> host_;
  std::unique_ptr<GpuBuffers> gpu_;  // null: no tensor on a GPU comes
  std::deque<Enqueued> enqueued_;
  TimePoint next_look_{};

  Mutex entering_;  // from taking a position to queueing it; before mutex_ and the table's lock
  std::uint64_t schedule_ GUARDED_BY(entering_) = 0;  // the order that began it

  std::atomic<int> work_{0};
  std::atomic<bool> news_{false};
  std::atomic<bool> watches_device_{false};
  Mutex mutex_;
  CondVar work_came_;
  bool woken_ GUARDED_BY(mutex_) = false;
  Batches queue_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::runtime
