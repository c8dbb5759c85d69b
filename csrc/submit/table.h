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

struct Entry {
  Handle handle = 0;
  wire::Request request;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;  // elements
  Stamps stamps;

  [[nodiscard]] std::size_t bytes() const { return count * size_of(request.dtype); }
};

// Thread-safe: framework threads add under one short lock, the negotiation token's holder drains, whoever
// completes an entry extracts it. An entry leaves the table exactly once: that is what makes completion
// unique.
class TensorTable {
 public:
  // Names an unnamed request first (before any check, so that an error cannot put the counters of ranks out
  // of step), then refuses a name that is in flight. On error the request goes to the peers as a failed use.
  Result<Handle> add(Entry entry, HandleTable& handles) EXCLUDES(mutex_);
  // A use of a name that failed this rank's local checks: has no entry, only a request with its error.
  void add_error(wire::Request request) EXCLUDES(mutex_);

  // Moves the requests that came since the last call into `out` (cleared first, capacity kept).
  void drain(std::vector<wire::Request>& out) EXCLUDES(mutex_);
  [[nodiscard]] bool anything_queued() const EXCLUDES(mutex_);

  // The entry, to whoever completes it; its name stays taken until release(). Null if it is not here.
  std::unique_ptr<Entry> extract(const std::string& name) EXCLUDES(mutex_);
  void release(const std::string& name) EXCLUDES(mutex_);
  // After close(why) add() fails with `why`. Returns the entries that nobody had extracted.
  std::vector<std::unique_ptr<Entry>> close(Status why) EXCLUDES(mutex_);
  [[nodiscard]] std::size_t in_flight() const EXCLUDES(mutex_);

 private:
  void name_if_unnamed(wire::Request& request) REQUIRES(mutex_);

  mutable Mutex mutex_;
  Status closed_ GUARDED_BY(mutex_);
  std::array<std::uint64_t, kOperationCount> unnamed_ GUARDED_BY(mutex_){};
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries_ GUARDED_BY(mutex_);  // null: extracted
  std::vector<wire::Request> queue_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::submit
