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
#include "bootstrap/rank_info.h"
#include "runtime/backend.h"
#include "submit/entry.h"
#include "submit/handles.h"
#include "wire/messages.h"

namespace roundelay::timeline {
class Timeline;
}

namespace roundelay::runtime {

// One rank's part in one operation, and the process set that carries it out.
struct Submission : submit::Arguments {
  ProcessSetId process_set = 0;
  // The caller calls wait() for the handle next. Until then, submit() wakes no thread for the operation.
  bool blocking = false;
};

// Thread-safe, except that shutdown() and destruction come last.
class Context {
 public:
  // Collective over all ranks. `backend` may be null: then the size is 1. Errors: kUnavailable,
  // kInvalidArgument, kAborted, the same on all ranks where they can still talk.
  static Result<std::unique_ptr<Context>> create(const Config& config, Backend* backend, const Start& start);
  virtual ~Context() = default;

  [[nodiscard]] virtual const bootstrap::RankInfo& rank_info() const = 0;
  [[nodiscard]] virtual const Config& config() const = 0;
  [[nodiscard]] virtual std::string bootstrap_name() const = 0;
  [[nodiscard]] virtual std::string channel_name() const = 0;
  [[nodiscard]] virtual std::string fabric_name() const = 0;

  // Errors: kInvalidArgument (the call is wrong: this rank raises, and peers are told under the same name),
  // kAborted with the first cause after a fault or shutdown.
  virtual Result<submit::Handle> submit(Submission submission) = 0;
  // Memory for allreduces in place, that ranks of the process set may reach: see base/region.h. On this
  // `gpu`, for this rank alone and not zeroed; -1: on the CPU. Errors: kUnavailable, kInvalidArgument
  // (unknown set, not the process's GPU), kAborted.
  virtual Result<RegionPtr> make_region(ProcessSetId process_set, std::uint64_t key, std::size_t bytes,
                                        int gpu) = 0;
  // The caller's own checks failed: the peers get `request.error` for their use of this name.
  virtual void submit_error(ProcessSetId process_set, wire::Request request) = 0;

  // Process sets. Adding and removing are collective over all ranks, one at a time on each rank, in two
  // steps: announce_... gives a handle to wait for (all ranks agree), then make_ or drop_process_set does it,
  // within the start timeout. Id 0 is the world. Errors: kInvalidArgument (ranks out of range, twice or none;
  // a set with these ranks exists; an unknown id), kMismatch (ranks announced different things), kAborted.
  virtual Result<submit::Handle> submit_new_set(std::vector<int> ranks) = 0;
  virtual Result<ProcessSetId> make_process_set(const std::vector<int>& ranks) = 0;
  virtual Result<submit::Handle> submit_removal(ProcessSetId id) = 0;
  // Waits for what is in flight in the set; what cannot complete, as some rank never submitted it, fails.
  virtual Status drop_process_set(ProcessSetId id) = 0;
  // World ranks, ascending; also for a rank that is not among them. kInvalidArgument: unknown id.
  virtual Result<std::vector<int>> ranks_of(ProcessSetId id) = 0;

  // Errors: kInvalidArgument if the handle is unknown.
  virtual Result<bool> poll(submit::Handle handle) = 0;
  // The operation's own status once it is done (the handle is then forgotten), nothing at the deadline.
  // May do the work of negotiating and reducing on the calling thread. Unknown handle: kInvalidArgument.
  virtual std::optional<Status> wait(submit::Handle handle, Deadline deadline) = 0;
  // The step's last gradient is in: order what is ready without lingering.
  virtual void flush() = 0;

  // The program computes nothing until end_wait(), as it waits for communication: such time is exposed while
  // an operation is under way. May be nested, and overlap other threads' waits.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;

  // Counters since init, by name; python/roundelay/torch/measure.py says what they count.
  [[nodiscard]] virtual std::map<std::string, std::int64_t> stats() const = 0;

  virtual timeline::Timeline& timeline() = 0;
  // Rank 0's call starts and stops it on all ranks; on others they do nothing. Errors: kInvalidArgument
  // (unwritable path).
  virtual Status start_timeline(const std::string& path, bool mark_cycles) = 0;
  virtual Status stop_timeline() = 0;

  // This process is about to die of `why` (an unhandled exception), or gave up something that all ranks are
  // in: all ranks get it as the first cause.
  virtual void fail(const std::string& why) = 0;

  // Finishes what is ordered, tells the peers (their later operations fail, naming this rank), joins all
  // threads.
  virtual void shutdown() = 0;
};

}  // namespace roundelay::runtime
