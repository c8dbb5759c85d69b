// Records the events of one rank for the job's Chrome/Perfetto trace (timeline/file.h). docs/timeline.md
// lists the events.
//
// Any thread records: this copies a few words under a short lock and does no I/O. The coordination thread
// drains: this turns the records into JSON text, which goes to rank 0 in TimelineChunks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/dtype.h"

namespace roundelay::timeline {

class JsonEvents;

// The rows of a rank in the viewer. The values are thread ids in the file. A lane that carries out two
// operations at once has a second row for the operations and for each level.
enum class Row : std::uint8_t {
  kTraining = 1,     // the program: backward, waits, optimizer steps
  kCopy = 2,         // packs and unpacks fusion buffers
  kCollective = 3,   // operations in host memory
  kNegotiation = 4,  // tensors that are ready (coordinators only), and orders
  kEnqueue = 5,      // operations on a GPU, when the host enqueues them
  kGpu = 6,          // the same operations, when the device carries them out
  kSecondCollective = 7,
  kInside = 8,   // operations while they are inside the nodes
  kBetween = 9,  // operations while they are between the nodes
  kSecondInside = 10,
  kSecondBetween = 11
};

// One batch (execute/batch.h) that a lane carried out.
struct CollectiveSpan {
  static constexpr std::size_t kShownNames = 4;
  Row row = Row::kCollective;
  Operation operation = Operation::kAllreduce;
  DType dtype = DType::kFloat32;
  std::uint64_t order = 0;                          // its sequence
  std::uint32_t index = 0;                          // the batch's index within the order
  std::uint32_t tensors = 0;                        // a bucket counts as its gradients
  std::uint64_t bytes = 0;                          // payload of this rank
  std::array<std::string_view, kShownNames> names;  // the first tensors' names; the rest is empty
  std::string_view algorithm;                       // the algorithm of the last call
  std::string_view technique;                       // the technique that reduced a bucket; empty: dense
  std::uint64_t called_bytes = 0;  // bytes that this rank gave to the fabric; shown only with a technique
  TimePoint begin;
  TimePoint end;
};

// The times of one tensor. A tensor that failed leaves the times that it did not reach at TimePoint{}.
struct TensorTimes {
  TimePoint submitted;  // the time of filing in the table
  TimePoint ordered;    // its lane queued it, by an order or by a schedule
  TimePoint started;    // its first batch began
  TimePoint completed;  // its handle is done
};

// A gradient that autograd has completed on this rank.
struct GradientMark {
  std::string_view name;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  std::uint64_t rows = 1;  // size of its first dimension: the rows of its matrix in PowerSGD
};

// Thread-safe, except drain().
class Timeline {
 public:
  static constexpr std::size_t kDefaultCapacity = 1U << 15U;  // events between two drains, about 6 MB
  static constexpr std::size_t kDefaultText = 1U << 18U;      // bytes of one drain

  // `capacity`: how many events the buffer holds. Further events are dropped and counted.
  explicit Timeline(int rank, std::size_t capacity = kDefaultCapacity) : rank_(rank), capacity_(capacity) {}

  // Returns true between start() and stop(). It costs one relaxed load: ask before you read clocks for a
  // record.
  [[nodiscard]] bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // Records from now on; `mark_cycles`: orders too. May be called again at any time. Events stay until they
  // are drained.
  void start(bool mark_cycles) EXCLUDES(mutex_);
  void stop() EXCLUDES(mutex_);

  // `offset`: rank 0's steady clock minus this rank's. All later drains use it.
  void set_offset(Duration offset) { offset_.store(offset.count(), std::memory_order_relaxed); }

  // Record one event. They do nothing while the timeline is not enabled. `bytes`: 0 is not shown.
  void record_span(Row row, std::string_view name, TimePoint begin, TimePoint end, std::uint64_t bytes = 0)
      EXCLUDES(mutex_);
  void record_collective(const CollectiveSpan& span) EXCLUDES(mutex_);
  void record_tensor(std::string_view name, const TensorTimes& times) EXCLUDES(mutex_);
  void record_gradient(const GradientMark& gradient, TimePoint at) EXCLUDES(mutex_);
  // Records that a tensor is ready: `last_rank` was the last to report it, `waited` after the first rank.
  // Only coordinators call it.
  void record_ready(std::string_view name, int last_rank, Duration waited, TimePoint at) EXCLUDES(mutex_);
  // Records that this order has come. Does nothing without `mark_cycles`.
  void record_order(std::uint64_t sequence, TimePoint at) EXCLUDES(mutex_);

  // Takes events out of the buffer and returns them as JSON objects with ",\n" between them, up to about
  // `most` bytes. "" if no event is left. One thread at a time.
  std::string drain(std::size_t most = kDefaultText) EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kTexts = CollectiveSpan::kShownNames + 2;  // the most texts of an event
  enum class Kind : std::uint8_t { kSpan, kCollective, kTensor, kGradient, kReady, kOrder };
  struct Event {
    Kind kind = Kind::kSpan;
    Row row = Row::kTraining;
    Operation operation = Operation::kAllreduce;
    DType dtype = DType::kFloat32;
    std::uint32_t index = 0;
    std::uint32_t tensors = 0;
    std::int32_t rank = -1;
    std::uint64_t order = 0;  // kGradient: elements
    std::uint64_t bytes = 0;
    std::uint64_t called_bytes = 0;  // kGradient: rows
    std::uint32_t text = 0;          // offset of its texts in Buffer::text
    std::array<std::uint16_t, kTexts> lengths{};
    std::array<std::int64_t, 4> times{};  // ns; their meaning depends on `kind`
  };
  struct Buffer {
    std::vector<Event> events;
    std::vector<char> text;
    std::uint64_t dropped = 0;    // events
    std::int64_t first_drop = 0;  // ns: time of the first of them
    bool names_due = false;       // write the names of the rank and its rows first
  };

  void push(Event event, std::span<const std::string_view> texts) EXCLUDES(mutex_);
  bool refill() EXCLUDES(mutex_);
  void format(const Event& event, JsonEvents& out);

  const int rank_;
  const std::size_t capacity_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> mark_cycles_{false};
  std::atomic<std::int64_t> offset_{0};

  Mutex mutex_;
  Buffer recorded_ GUARDED_BY(mutex_);

  // Only drain() uses these.
  Buffer draining_;
  std::size_t next_ = 0;           // an index in draining_.events
  std::uint64_t next_tensor_ = 0;  // ids of the tensors' async events
};

}  // namespace roundelay::timeline
