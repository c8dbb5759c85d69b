// The tensor table of one lane: operations in flight by name, and the queue of those not yet negotiated.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/announcements.h"
#include "base/gpu.h"
#include "base/region.h"
#include "base/status.h"
#include "submit/handles.h"
#include "submit/schedule_lock.h"
#include "wire/messages.h"

namespace roundelay::submit {

// When an entry passed each stage (steady clock); the timeline's raw material.
struct EntryTimes {
  TimePoint submitted{};
  TimePoint ordered{};
  TimePoint started{};
  TimePoint reduced{};
};

// Where results go whose size is known only when all ranks have reported. Outlives the entry.
class Results {
 public:
  virtual ~Results() = default;
  struct Memory {
    std::byte* data = nullptr;
    GpuEventPtr free{};  // on a GPU: nobody else's behind this point
  };
  // For the result of tensor `part`. Called by whoever drives the lane, without the GIL.
  // Errors: kUnavailable (no memory).
  virtual Result<Memory> allocate(std::size_t part, const std::vector<std::int64_t>& shape) = 0;
  // Alltoall: rows received from each member.
  virtual void set_received_splits(std::vector<std::int64_t> rows) = 0;
  // On a GPU, before the handle is done: all results are there behind this point.
  virtual void set_done(GpuEventPtr /*event*/) {}  // NOLINT(performance-unnecessary-value-param)
};

// One tensor of an operation: contiguous memory of `count` elements.
struct Part {
  DType dtype = DType::kFloat32;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // null: asked for from Results
  std::size_t count = 0;        // elements of the input
  RegionPtr region{};           // allreduce in place: `output` is in it, at request.region

  [[nodiscard]] std::size_t bytes() const { return count * size_of(dtype); }
};

struct Entry {
  Handle handle = 0;
  wire::Request request;
  std::vector<Part> parts;           // one, or a grouped operation's; none: barrier, join, process set
  std::vector<std::int64_t> splits;  // alltoall: rows for each member
  Results* results = nullptr;
  int gpu = -1;                // request.device is a GPU: which one
  GpuEventPtr inputs_ready{};  // inputs are there, outputs free, behind this point
  std::size_t unfinished = 0;  // the lane's: batches that still work on it
  EntryTimes tickets;

  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Part& part : parts) sum += part.bytes();
    return sum;
  }
  [[nodiscard]] std::string describe() const;  // for errors: wire/describe.h
};

inline constexpr const char* kJoinName = "<join>";  // of every join, and of nothing else

// Thread-safe: framework threads add under one short lock, the negotiation token's holder drains, whoever
// completes an entry extracts it. An entry leaves the table exactly once: that is what makes completion
// unique.
//
// Under a schedule lock what belongs to the schedule is not queued but announced to the peers, by whoever
// submits it.
class TensorTable {
 public:
  // `announcements`: of the lane's group; without them nothing is ever announced.
  explicit TensorTable(std::shared_ptr<Announcements> announcements = nullptr)
      : announcements_(std::move(announcements)) {}

  // Names an unnamed request first (before any check, so that an error cannot put the counters of ranks out
  // of step), then refuses a name that is in flight. On error the request goes to the peers as a failed use.
  // Fills in what only the table knows: a join's name, an unnamed use's number, what must not be cached.
  // Refused without a word to the peers: the joins' name for anything else.
  Result<Handle> add(Entry entry, HandleTable& handles) EXCLUDES(mutex_);
  // A use of a name that failed this rank's local checks: has no entry, only a request with its error.
  void add_error(wire::Request request) EXCLUDES(mutex_);

  // Moves the requests that came since the last call into `out` (cleared first, capacity kept).
  void drain(std::vector<wire::Request>& out) EXCLUDES(mutex_);
  [[nodiscard]] bool anything_queued() const EXCLUDES(mutex_);

  // From the add() of a join until here, or until its release(), everything else is refused
  // (kInvalidArgument) and neither counts nor reaches the peers. `counters`: where unnamed names go on.
  void joined(const std::vector<std::uint64_t>& counters) EXCLUDES(mutex_);
  // Before the release() of a join that failed: unnamed uses that the peers made meanwhile count here too.
  void join_failed(const std::vector<std::uint64_t>& counters) EXCLUDES(mutex_);

  // The entry, to whoever completes it; its name stays taken until release(). Null if it is not here.
  std::shared_ptr<Entry> extract(const std::string& name) EXCLUDES(mutex_);
  // Of an entry that was extracted.
  void release(const std::string& name) EXCLUDES(mutex_);
  // After close(why) add() fails with `why`. Returns the entries that nobody had extracted.
  std::vector<std::shared_ptr<Entry>> close(Status why) EXCLUDES(mutex_);
  [[nodiscard]] std::size_t in_flight() const EXCLUDES(mutex_);

  // The schedule lock (table_schedule.cc), of the negotiation token's holder.
  [[nodiscard]] bool can_lock() const { return announcements_ != nullptr; }
  // `returned`: uses that were drained and have neither been ordered nor failed, in order by name.
  void begin_schedule(std::uint64_t number, const ScheduleLock::Operations& operations,
                      std::vector<wire::Request> returned) EXCLUDES(mutex_);
  // Announce no more; whatever comes is queued.
  void freeze() EXCLUDES(mutex_);
  // Once frozen: how many positions were announced.
  [[nodiscard]] std::optional<std::uint64_t> frozen_after() const EXCLUDES(mutex_);
  // What was not entered is queued, before what came later.
  void end_schedule() EXCLUDES(mutex_);

  // From any thread. Under a lock; and under one that is not frozen.
  [[nodiscard]] bool scheduled() const { return scheduled_.load(std::memory_order_acquire); }
  [[nodiscard]] bool schedule_open() const { return schedule_open_.load(std::memory_order_acquire); }
  // Somebody waits for this: freezes if it cannot come before something that is not submitted here. True: it
  // did.
  bool waited_for(Handle handle) EXCLUDES(mutex_);
  // Whether all ranks have announced the next operation.
  [[nodiscard]] bool may_enter() const EXCLUDES(mutex_);
  // Its members, if they have ...
  std::optional<ScheduleLock::Names> enter() EXCLUDES(mutex_);
  // ... or, of the first `until` positions, whether or not they are seen to have announced it.
  std::optional<ScheduleLock::Names> enter_before(std::uint64_t until) EXCLUDES(mutex_);
  // Freezes what waits for too long; says when to look again. Never: whoever submits next is to see to it
  // (take_unwatched).
  Deadline look(TimePoint now) EXCLUDES(mutex_);
  [[nodiscard]] bool take_unwatched() {
    return unwatched_submission_.load(std::memory_order_relaxed) && unwatched_submission_.exchange(false);
  }

 private:
  void take_in(const wire::Request& request) REQUIRES(mutex_);
  void announce() REQUIRES(mutex_);
  void name_if_unnamed(wire::Request& request) REQUIRES(mutex_);
  [[nodiscard]] std::string refusal_of(const wire::Request& request) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Status closed_ GUARDED_BY(mutex_);
  std::array<std::uint64_t, kOperationCount> unnamed_ GUARDED_BY(mutex_){};
  bool joined_ GUARDED_BY(mutex_) = false;
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_ GUARDED_BY(mutex_);  // null: extracted
  std::vector<wire::Request> queue_ GUARDED_BY(mutex_);

  const std::shared_ptr<Announcements> announcements_;
  ScheduleLock schedule_ GUARDED_BY(mutex_);
  std::uint64_t announced_ GUARDED_BY(mutex_) = 0;  // what the peers know of it
  bool watched_ GUARDED_BY(mutex_) = true;
  std::atomic<bool> scheduled_{false};
  std::atomic<bool> schedule_open_{false};
  std::atomic<bool> unwatched_submission_{false};
};

}  // namespace roundelay::submit
