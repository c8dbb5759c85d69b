// A lane carries out the orders of one process set, in sequence. It packs the next batch while its fabric
// carries the one before it.
//
// On a fabric with levels the lane has several executors, each with a fabric of its own, so that one batch is
// reduced inside the nodes while another one is between them. The rule:
// - An allreduce of the CPU that goes over the levels takes the executors in turn. An executor carries one
//   batch at a time. All members count the same batches, so that a batch has the same executor on all of
//   them.
// - Every other batch (also one that a joined member skips) runs alone, on the first executor. It waits until
//   all executors are idle, and no batch starts while it runs.
// - Batches start in the sequence of their orders. They may end in any order.
// So each fabric gets the same calls in the same order on all members, and the members need not agree on
// anything else. A fabric without levels has one executor, on which each batch runs alone.
//
// The lane decides when a batch is prepared, started and over. Its parts do the rest:
//   LaneSchedule   queues what a schedule lock lets begin without an order
//   BatchQueue     holds the batches that were ordered
//   LaneExecutors  choose the executor of a batch, which carries it out (BatchExecutor)
//   GpuWatch       keeps the batches that a device has not done
//   LaneRecorder   counts, and tells the timeline
//   LaneWaker      wakes the threads that sleep for the lane
// A lane blocks nowhere: the holder of its token calls step() again and again. Entries that were ordered
// belong to the lane until it completes them, on every path. After an abort it fails them; before that the
// user's buffers are not free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/abort.h"
#include "base/region.h"
#include "execute/batch_queue.h"
#include "execute/completer.h"
#include "execute/gpu_watch.h"
#include "execute/lane_executors.h"
#include "execute/lane_options.h"
#include "execute/lane_recorder.h"
#include "execute/lane_schedule.h"
#include "execute/lane_waker.h"
#include "execute/late_peers.h"
#include "execute/progress_token.h"
#include "negotiate/participant.h"
#include "submit/table.h"
#include "timeline/timeline.h"
#include "wire/messages.h"

namespace roundelay::execute {

class Lane {
 public:
  // The calls by which the lane reports to the control plane. None may block. The holder of the lane's token
  // calls `stuck` or `fault`, and once at most.
  struct Faults {
    // A deadline passed. The watchdog finds out which rank is to blame.
    std::function<void(wire::Stuck)> stuck;
    // Another error ended the batch: communication is over.
    std::function<void(wire::Abort)> fault;
    // Wakes the negotiator: the schedule has to end, or has left submissions to negotiate (LaneSchedule).
    std::function<void()> wake_negotiator{};
  };

  // Makes an executor for each fabric. `completer`, `timeline` and `abort` outlive the lane.
  Lane(LaneId id, LaneFabrics fabrics, Completer& completer, timeline::Timeline& timeline,
       const AbortToken& abort, const LaneOptions& options, Faults faults);
  ~Lane();

  [[nodiscard]] LaneId id() const { return id_; }
  [[nodiscard]] const Group& group() const { return group_; }
  // Returns the number of members of each level, as in compress::Technique::state_bytes(), of the fabric for
  // memory of this kind. Any thread.
  [[nodiscard]] const std::vector<int>& level_sizes(DeviceType device) const {
    return device == DeviceType::kGpu ? gpu_level_sizes_ : level_sizes_;
  }
  // Returns the first executor's fabric. Any thread may call the functions of it that LaneExecutors::first()
  // names. Not after close_fabrics().
  [[nodiscard]] const collective::Fabric& fabric() const { return executors_.first().fabric(); }
  // Frees the fabrics when the lane has no work and none will come. The thread that frees fabrics calls it;
  // other threads may keep the lane, and step() it. Later calls do nothing.
  void close_fabrics();
  // Makes memory that the group's calls may work on in place (base/region.h). Any thread.
  [[nodiscard]] Result<RegionPtr> make_region(std::uint64_t key, std::size_t bytes) const {
    return make_region_(key, bytes);
  }
  // Return the lane's tensor table and its progress token, which live as long as the lane. Any thread.
  [[nodiscard]] submit::TensorTable& table() { return table_; }
  [[nodiscard]] ProgressToken& token() { return token_; }
  // Returns whether a caller that waits may take the token. False: only the background thread may (MPI below
  // THREAD_MULTIPLE).
  [[nodiscard]] bool caller_may_drive() const { return fabric().any_thread(); }

  // Queues an order's operations. Wakes no thread: the caller may step the lane itself. Only the holder of
  // the negotiation token calls it, in the sequence of orders.
  void enqueue(std::uint64_t sequence, const negotiate::OrderedOperation& ordered) {
    queue_.enqueue(sequence, ordered);
  }
  // Does the same for an entry with a call of its own, which the table has admitted. Calls are carried out in
  // the order in which they come, the same on all members. A lane gets such calls alone, or orders alone. Any
  // thread.
  void enqueue(std::shared_ptr<submit::Entry> entry) { queue_.append(std::move(entry)); }
  // Moves the lane on. Never blocks. False: nothing moved. Only the holder of the lane's token calls it.
  bool step();
  // Returns the pause until the next step, after a step in which nothing moved. wake() ends the pause. Only
  // the holder of the lane's token calls it; it may take the nap without the token.
  [[nodiscard]] Nap idle(Backoff& backoff);

  // The schedule lock. LaneSchedule describes these functions and their threads.
  [[nodiscard]] LaneSchedule& schedule() { return schedule_; }
  void begin_schedule(std::uint64_t sequence) { schedule_.begin(sequence); }
  void end_schedule(std::uint64_t from) { schedule_.end(from); }
  [[nodiscard]] bool goes_by_schedule() const { return schedule_.open(); }
  [[nodiscard]] bool may_enter() const { return schedule_.may_enter(); }
  // Returns whether step() has something to do, or will have without a message.
  [[nodiscard]] bool may_step() const {
    return (has_work() || goes_by_schedule()) && !schedule_.waits_for_messages();
  }

  // Returns what the lane knows of the peers that calls of their own wait for. Any thread.
  [[nodiscard]] LatePeers& late_peers() { return late_peers_; }
  // Returns whether operations are ordered and not complete; after an abort, until the lane has failed all of
  // them. Any thread.
  [[nodiscard]] bool has_work() const { return queue_.has_work(); }
  // Returns whether a device has not done all that the lane enqueued: step() is to look at it now and then.
  // Any thread.
  [[nodiscard]] bool watches_device() const { return gpu_watch_.active(); }
  // Returns whether there is work, or an operation to enter, and no driver to do it: who drives wakes the
  // lane's thread for what is left (Engine::wait). Any thread.
  [[nodiscard]] bool needs_thread() const { return (has_work() || may_enter()) && !token_.driven(); }
  // Sleeps until wake() or the deadline; under a schedule lock, also until all members have announced the
  // next operation. Returns at once if needs_thread(). Only the lane's thread calls it.
  void wait_for_work(Deadline deadline);
  // Ends every sleep for this lane. Any thread.
  void wake() { waker_.wake(); }

  // Notes that something was submitted that has to be negotiated. Any thread.
  void note_unreported() { unreported_.store(true, std::memory_order_release); }
  // Returns whether that happened since the last call. The caller makes sure that the negotiator steps:
  // perhaps no other thread was woken for it. Any thread.
  [[nodiscard]] bool take_unreported() { return unreported_.exchange(false, std::memory_order_acq_rel); }

  // Return this lane's counters, and add them to `sum` with those of its fabrics. Any thread.
  [[nodiscard]] const LaneCounters& counters() const { return recorder_.counters(); }
  void add_counters(LaneCounters& sum) const { recorder_.add_to(sum); }

 private:
  // The stages of a step. Each returns whether something moved.
  bool start_prepared();
  bool prepare_next();
  bool advance_running();
  void look_at_device();
  bool fail_everything();

  void conclude(std::unique_ptr<Batch> batch);
  void release(Batch& batch, const Status& outcome);
  void report(const Batch& batch, const Status& why);
  void report_device(const GpuWatch::Failure& failure);
  void report_schedule(const Status& why);

  const LaneId id_;
  Completer& completer_;
  const AbortToken& abort_;
  const Faults faults_;
  ProgressToken token_;
  std::atomic<bool> unreported_{false};
  LatePeers late_peers_;

  LaneExecutors executors_;  // only the holder of the token uses them, but for fabric()
  const Group group_;
  const std::vector<int> level_sizes_, gpu_level_sizes_;
  const RegionMaker make_region_;
  LaneWaker waker_;
  submit::TensorTable table_;
  BatchQueue queue_;
  LaneRecorder recorder_;
  LaneSchedule schedule_;

  // Only the holder of the token uses these, but any thread may call GpuWatch::active().
  GpuWatch gpu_watch_;
  std::unique_ptr<Batch> prepared_;  // the batch to start next, or null
  bool faulted_ = false;             // an error was reported: the lane waits until abort_ is raised
};

}  // namespace roundelay::execute
