// One init() of this process, until its shutdown(): the rank's place, its operations and process sets, its
// timeline. The bindings call nothing else of the core to run a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/group.h"
#include "base/status.h"
#include "bootstrap/rank_info.h"
#include "bootstrap/topology.h"
#include "complete/handles.h"
#include "runtime/allreduce_ways.h"
#include "runtime/backend.h"
#include "submit/entry.h"
#include "wire/messages.h"

namespace roundelay::collective {
class PointToPoint;
}
namespace roundelay::timeline {
class Timeline;
}

namespace roundelay::runtime {

// Says which process set carries out an operation, and whether its caller waits for it at once.
struct Route {
  ProcessSetId process_set = 0;
  // The caller calls wait() for the handle next. Until then, submit() wakes no thread for the operation.
  bool blocking = false;
};

// Any thread may call any function. shutdown() and destruction come last.
class Context {
 public:
  // Starts communication. Collective over all ranks; blocks for at most ROUNDELAY_START_TIMEOUT. `backend`
  // outlives the context; without one (null) the job has one rank. Errors: kUnavailable, kInvalidArgument,
  // kAborted. All ranks get the same error as long as they can talk.
  static Result<std::unique_ptr<Context>> create(const Config& config, Backend* backend, const Start& start);
  virtual ~Context() = default;

  [[nodiscard]] virtual const bootstrap::RankInfo& rank_info() const = 0;
  // Returns the levels of the world's ranks. Equal on all of them.
  [[nodiscard]] virtual const bootstrap::Topology& topology() const = 0;
  [[nodiscard]] virtual const AllreduceWays& allreduce_ways() const = 0;
  [[nodiscard]] virtual const Config& config() const = 0;
  [[nodiscard]] virtual std::string bootstrap_name() const = 0;
  [[nodiscard]] virtual std::string channel_name() const = 0;
  [[nodiscard]] virtual std::string fabric_name() const = 0;

  // Starts an operation and returns at once. Errors: kInvalidArgument (the call is wrong: the peers' use of
  // the same name fails too), kAborted (with the first cause, after a fault or shutdown).
  virtual Result<complete::Handle> submit(submit::Arguments arguments, Route route) = 0;
  // Starts an operation that has a call of its own (collective/whole_call.h), without asking the peers: calls
  // are carried out in the order in which they come, the same on all ranks. Only in a session in call order
  // (Start::call_order), which has no other operations. `blocking`: as in Route. Errors: kAborted, kMismatch
  // (with the first cause, after a fault or shutdown).
  virtual Result<complete::Handle> call(submit::Arguments arguments, bool blocking) = 0;
  // Returns ok, or why communication is over for all ranks.
  [[nodiscard]] virtual Status fault() const = 0;
  // Returns the rank that has left a session in call order, when all that it sent before must have come; -1:
  // none has.
  [[nodiscard]] virtual int left_rank() const = 0;
  // Returns the messages between two ranks of a session in call order, which call nothing else of the
  // session. The caller gives them up after a fault(). Null: there is one rank, or they were taken before.
  virtual std::unique_ptr<collective::PointToPoint> take_messages() = 0;
  // Makes memory for allreduces in place, which the ranks of the process set may reach (base/region.h). If
  // `gpu` is not -1: memory of that GPU, which only this rank reaches and which is not zeroed. Errors:
  // kUnavailable, kInvalidArgument (unknown set, not the process's GPU), kAborted.
  virtual Result<RegionPtr> make_region(ProcessSetId process_set, std::uint64_t key, std::size_t bytes,
                                        int gpu) = 0;
  // Tells the peers that this rank's call of request.name failed the caller's own checks. Their calls fail
  // with the text `request.error`.
  virtual void submit_error(ProcessSetId process_set, wire::Request request) = 0;

  // Process sets are made and removed in two steps, each by all ranks of the world, one change at a time.
  // First every rank calls submit_new_set() or submit_removal() and waits for the handle, which is done when
  // all have submitted the same. Then every rank calls make_process_set() or drop_process_set(); these wait
  // for the other ranks for at most ROUNDELAY_START_TIMEOUT. Set 0 is the world. Errors: kInvalidArgument
  // (the ranks are not in the world, or not ascending; there is such a set; the id is unknown), kMismatch
  // (ranks have submitted different changes), kUnavailable (a member could not make its part), kAborted.
  virtual Result<complete::Handle> submit_new_set(std::vector<int> ranks) = 0;
  virtual Result<ProcessSetId> make_process_set(const std::vector<int>& ranks) = 0;
  virtual Result<complete::Handle> submit_removal(ProcessSetId id) = 0;
  // All ranks of the world submit it where none of them has a change in mind: the handle is done when all
  // have. Errors: kMismatch (others have submitted a change, and would wait for this rank for ever).
  virtual Result<complete::Handle> submit_no_change() = 0;
  // Also waits for the operations that are in flight in the set. An operation that some member has not
  // submitted fails.
  virtual Status drop_process_set(ProcessSetId id) = 0;
  // Returns the sizes of the levels of the set's fabric for memory of this kind, the node first: {4, 2} for
  // two nodes with four ranks each, {4} for one, {1, 8} for a fabric without levels over several nodes. Equal
  // on all ranks. Any thread. Errors: kInvalidArgument (unknown id, or this rank is no member).
  virtual Result<std::vector<int>> level_sizes(ProcessSetId id, DeviceType device) = 0;

  // Returns true if the operation is done. Errors: kInvalidArgument (unknown handle).
  virtual Result<bool> poll(complete::Handle handle) = 0;
  // Blocks until the operation is done, and returns its status; the handle is then unknown. Returns nothing
  // at the deadline. The caller's thread may negotiate and reduce meanwhile. Errors: kInvalidArgument
  // (unknown handle).
  virtual std::optional<Status> wait(complete::Handle handle, Deadline deadline) = 0;
  // Asks for orders of all that is ready, without lingering. Call it when the step's last gradient is
  // submitted.
  virtual void end_linger() = 0;

  // Mark the time in which the calling thread computes nothing because it waits for communication. Calls may
  // be nested, and several threads may wait. stats() counts such time as exposed while an operation is under
  // way.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;

  // Returns the counters since init, by name. python/roundelay/torch/_internal/measure.py says what they
  // count.
  [[nodiscard]] virtual std::map<std::string, std::int64_t> stats() const = 0;

  // Returns this rank's recorder. The context owns it.
  virtual timeline::Timeline& timeline() = 0;
  // Start or stop the timeline of all ranks, on rank 0. Do nothing on other ranks. Errors: kInvalidArgument
  // (the file cannot be written).
  virtual Status start_timeline(const std::string& path, bool mark_cycles) = 0;
  virtual Status stop_timeline() = 0;

  // Ends communication for all ranks, with `why` as the cause. Call it if this process is about to die of an
  // exception, or has given up a call that all ranks are in. Waits for up to 2 seconds until the others are
  // told.
  virtual void fail(const std::string& why) = 0;

  // Completes the operations that were ordered, tells the peers, and joins all threads. Later operations of
  // the peers fail with this rank's name. Later calls do nothing.
  virtual void shutdown() = 0;
};

}  // namespace roundelay::runtime
