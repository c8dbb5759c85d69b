// One init() to shutdown(): the rank's place, its lanes, its threads. What the bindings drive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/config.h"
#include "base/group.h"
#include "base/status.h"
#include "runtime/backend.h"
#include "runtime/placement.h"
#include "submit/handles.h"
#include "wire/messages.h"

namespace roundelay::runtime {

class Timeline;

// One rank's part in one operation. `input` and `output` (which may be equal) hold `request.shape` elements
// of `request.dtype` contiguously and must stay valid until the handle is done.
struct Submission {
  LaneId lane;
  wire::Request request;  // name "": the next name of the counter for (operation, process set)
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// Thread-safe, except that shutdown() and destruction come last.
class Context {
 public:
  // Collective over all ranks. `backend` may be null: then the size is 1. Errors: kUnavailable,
  // kInvalidArgument, kAborted, the same on all ranks where they can still talk.
  static Result<std::unique_ptr<Context>> create(const Config& config, Backend* backend,
                                                 std::uint32_t generation);
  virtual ~Context() = default;

  [[nodiscard]] virtual const Placement& placement() const = 0;
  [[nodiscard]] virtual const Config& config() const = 0;
  [[nodiscard]] virtual std::string bootstrap_name() const = 0;
  [[nodiscard]] virtual std::string channel_name() const = 0;
  [[nodiscard]] virtual std::string fabric_name() const = 0;

  // Errors: kInvalidArgument (the call is wrong: this rank raises, and peers are told under the same name),
  // kAborted with the first cause after a fault or shutdown.
  virtual Result<submit::Handle> submit(Submission submission) = 0;
  // The caller's own checks failed: the peers get `request.error` for their use of this name.
  virtual void submit_error(LaneId lane, wire::Request request) = 0;

  // Errors: kInvalidArgument if the handle is unknown.
  virtual Result<bool> poll(submit::Handle handle) = 0;
  // The operation's own status once it is done (the handle is then forgotten), nothing at the deadline.
  // May do the work of negotiating and reducing on the calling thread. Unknown handle: kInvalidArgument.
  virtual std::optional<Status> wait(submit::Handle handle, Deadline deadline) = 0;
  // The step's last gradient is in: order what is ready without lingering.
  virtual void flush() = 0;

  // Counters since init, by name (docs/statistics in README).
  [[nodiscard]] virtual std::map<std::string, std::int64_t> stats() const = 0;

  virtual Timeline& timeline() = 0;
  // Rank 0's call starts and stops it on all ranks; on others they do nothing. Errors: kInvalidArgument
  // (unwritable path).
  virtual Status start_timeline(const std::string& path, bool mark_cycles) = 0;
  virtual Status stop_timeline() = 0;

  // This process is about to die of `why` (an unhandled exception): all ranks get it as the first cause.
  virtual void fail(const std::string& why) = 0;

  // Finishes what is ordered, tells the peers (their later operations fail, naming this rank), joins all
  // threads.
  virtual void shutdown() = 0;
};

}  // namespace roundelay::runtime
