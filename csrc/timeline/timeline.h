// What one rank did when, for the job's one Chrome/Perfetto trace (timeline_file.h). docs/timeline.md lists
// the events.
//
// Any thread records; recording copies a few words under a short lock and does no I/O. The coordination
// thread drains: it turns what was recorded into JSON text, which travels to rank 0 as TimelineChunks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/dtype.h"

namespace roundelay::timeline {

class JsonEvents;

// Rows of a rank in the viewer. The values are thread ids in the file. What goes over a GPU is there twice:
// when the host enqueued it, and when the device did it.
enum class Track : std::uint8_t {
  kTraining = 1,
  kCopy = 2,
  kCollective = 3,
  kNegotiation = 4,
  kEnqueue = 5,
  kGpu = 6
};

// One fused operation on the data plane.
struct CollectiveSpan {
  static constexpr std::size_t kShownNames = 4;
  Track track = Track::kCollective;
  Operation operation = Operation::kAllreduce;
  DType dtype = DType::kFloat32;
  std::uint64_t order = 0;
  std::uint32_t index = 0;                          // within the order
  std::uint32_t tensors = 0;                        // members in all
  std::uint64_t bytes = 0;                          // payload of this rank
  std::array<std::string_view, kShownNames> names;  // the first members; unused ones are empty
  TimePoint begin;
  TimePoint end;
};

// The stations of one tensor: in the table, in an order, on the data plane, handle done. One that failed
// before leaves those it did not reach as they are.
struct TensorTimes {
  TimePoint submitted;
  TimePoint ordered;
  TimePoint started;
  TimePoint completed;
};

class Timeline {
 public:
  static constexpr std::size_t kDefaultCapacity = 1U << 15U;  // events between two drains, about 6 MB
  static constexpr std::size_t kDefaultText = 1U << 18U;      // bytes of one drain

  explicit Timeline(int rank, std::size_t capacity = kDefaultCapacity) : rank_(rank), capacity_(capacity) {}

  // One relaxed load: ask before taking times for a record.
  [[nodiscard]] bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // May be called again after stop(), also between. What was recorded stays until it is drained.
  void start(bool mark_cycles) EXCLUDES(mutex_);
  void stop() EXCLUDES(mutex_);

  // rank 0's steady clock minus this rank's; used for all that is drained from now on.
  void set_offset(Duration offset) { offset_.store(offset.count(), std::memory_order_relaxed); }

  // Each does nothing while the timeline is not enabled; counts a drop when the buffer is full.
  void record_span(Track track, std::string_view name, TimePoint begin, TimePoint end,
                   std::uint64_t bytes = 0) EXCLUDES(mutex_);
  void record_collective(const CollectiveSpan& span) EXCLUDES(mutex_);
  void record_tensor(std::string_view name, const TensorTimes& times) EXCLUDES(mutex_);
  // Coordinator: `last_rank` was the last to report the tensor, `waited` after the first.
  void record_ready(std::string_view name, int last_rank, Duration waited, TimePoint at) EXCLUDES(mutex_);
  // Recorded only when cycles are to be marked.
  void record_order(std::uint64_t sequence, TimePoint at) EXCLUDES(mutex_);

  // Up to about `most` bytes of events as JSON objects with ",\n" between them; "" when there are none
  // left. One thread at a time.
  std::string drain(std::size_t most = kDefaultText) EXCLUDES(mutex_);

 private:
  enum class Kind : std::uint8_t { kSpan, kCollective, kTensor, kReady, kOrder };
  struct Event {
    Kind kind = Kind::kSpan;
    Track track = Track::kTraining;
    Operation operation = Operation::kAllreduce;
    DType dtype = DType::kFloat32;
    std::uint32_t index = 0;
    std::uint32_t tensors = 0;
    std::int32_t rank = -1;
    std::uint64_t order = 0;
    std::uint64_t bytes = 0;
    std::uint32_t text = 0;  // where its names start in Buffer::text
    std::array<std::uint16_t, CollectiveSpan::kShownNames> lengths{};
    std::array<std::int64_t, 4> times{};  // ns
  };
  struct Buffer {
    std::vector<Event> events;
    std::vector<char> text;
    std::uint64_t dropped = 0;
    std::int64_t first_drop = 0;
    bool announce = false;  // the names of the rank and of its tracks come first
  };

  void push(Event event, const std::string_view* names, std::size_t count) EXCLUDES(mutex_);
  bool refill() EXCLUDES(mutex_);
  void format(const Event& event, JsonEvents& out);

  const int rank_;
  const std::size_t capacity_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> mark_cycles_{false};
  std::atomic<std::int64_t> offset_{0};

  Mutex mutex_;
  Buffer recorded_ GUARDED_BY(mutex_);

  // The draining thread's own.
  Buffer draining_;
  std::size_t next_ = 0;           // in draining_.events
  std::uint64_t next_tensor_ = 0;  // ids of the tensors' async events
};

}  // namespace roundelay::timeline
