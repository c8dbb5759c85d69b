// The tensor table of one lane: operations in flight by name, and the queue of those not yet negotiated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "base/region.h"
#include "base/status.h"
#include "submit/handles.h"
#include "wire/messages.h"

namespace roundelay::submit {

// When an entry passed each stage (steady clock); the timeline's raw material.
struct Stamps {
  TimePoint submitted{};
  TimePoint ordered{};
  TimePoint started{};
  TimePoint reduced{};
};

// Where results go whose size is known only when all ranks have reported. Outlives the entry.
class Results {
 public:
  virtual ~Results() = default;
  // Memory for the result of tensor `part`. Called by whoever drives the lane, without the GIL.
  // Errors: kUnavailable (no memory).
  virtual Result<std::byte*> allocate(std::size_t part, const std::vector<std::int64_t>& shape) = 0;
  // Alltoall: rows received from each member.
  virtual void set_received_splits(std::vector<std::int64_t> rows) = 0;
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
  std::size_t unfinished = 0;  // the lane's: batches that still work on it
  Stamps stamps;

  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Part& part : parts) sum += part.bytes();
    return sum;
  }
};

inline constexpr const char* kJoinName = "<join>";  // of every join, and of nothing else

// Thread-safe: framework threads add under one short lock, the negotiation token's holder drains, whoever
// completes an entry extracts it. An entry leaves the table exactly once: that is what makes completion
// unique.
class TensorTable {
 public:
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

 private:
  void name_if_unnamed(wire::Request& request) REQUIRES(mutex_);
  [[nodiscard]] std::string refusal_of(const wire::Request& request) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Status closed_ GUARDED_BY(mutex_);
  std::array<std::uint64_t, kOperationCount> unnamed_ GUARDED_BY(mutex_){};
  bool joined_ GUARDED_BY(mutex_) = false;
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_ GUARDED_BY(mutex_);  // null: extracted
  std::vector<wire::Request> queue_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::submit
