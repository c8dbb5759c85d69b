// The executors of a lane: each has a fabric of its own and carries one batch at a time. execute/lane.h has
// the rule that says which batches may be under way at once.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/abort.h"
#include "base/group.h"
#include "base/status.h"
#include "collective/fabric.h"
#include "execute/batch.h"
#include "execute/batch_executor.h"
#include "execute/lane_options.h"

namespace roundelay::execute {

struct LaneFabrics {
  // Of the executors: one or more, alike, each of them for all members of one group.
  std::vector<std::unique_ptr<collective::Fabric>> all{};
  // Of a group on several nodes. A fabric within a node has its own. Null: no schedule is locked.
  std::shared_ptr<lock::Announcements> announcements{};
};

// Returns the fabrics of a lane with one executor.
LaneFabrics one_fabric(std::unique_ptr<collective::Fabric> fabric);

struct LaneExecutor {
  // Arguments as BatchExecutor's.
  LaneExecutor(std::unique_ptr<collective::Fabric> fabric, const AbortToken& abort,
               const LaneOptions& options)
      : batches(std::move(fabric), abort, options) {}

  BatchExecutor batches;
  std::unique_ptr<Batch> running{};  // started, or null
};

// One thread at a time, the holder of the lane's token; but see first() and wakers().
class LaneExecutors {
 public:
  // Only the first executor takes batches on a GPU. `abort` outlives the executors.
  LaneExecutors(std::vector<std::unique_ptr<collective::Fabric>> fabrics, const AbortToken& abort,
                const LaneOptions& options);

  // Returns the first executor. Any thread may ask its fabric for name(), group(), level_fabrics() and
  // any_thread().
  [[nodiscard]] const BatchExecutor& first() const { return all_.front()->batches; }
  [[nodiscard]] BatchExecutor& first() { return all_.front()->batches; }
  [[nodiscard]] const std::vector<std::unique_ptr<LaneExecutor>>& all() const { return all_; }
  // Returns the wakers of those fabrics whose calls sleep, and the counters of those that count.
  [[nodiscard]] std::vector<collective::Waker*> wakers() const;
  [[nodiscard]] std::vector<std::shared_ptr<const collective::FabricCounters>> counters() const;

  // Chooses the batch's executor and prepares the batch there. Call it once for each batch, in the order of
  // batches. Errors: those of BatchExecutor.
  [[nodiscard]] Status prepare(Batch& batch, bool timed);
  // Returns whether a prepared batch may start. All batches before it have started.
  [[nodiscard]] bool may_start(const Batch& batch) const;
  // Starts a prepared batch on its executor. Errors: those of BatchExecutor.
  [[nodiscard]] Status start(std::unique_ptr<Batch> batch);
  // Returns whether no batch is under way.
  [[nodiscard]] bool idle() const;
  // Returns the pause until a batch that is under way may move. Not while idle().
  [[nodiscard]] Nap nap(Backoff& backoff) const;
  // Calls BatchExecutor::abandon() on the batch's executor.
  void abandon(Batch& batch) { all_[batch.executor]->batches.abandon(batch); }
  // Removes all batches that are under way and returns them, the oldest first.
  [[nodiscard]] Batches take_running();
  // Closes the executors (BatchExecutor::close()).
  void close();

 private:
  std::vector<std::unique_ptr<LaneExecutor>> all_;  // never empty
  std::size_t next_ = 0;                            // the executor of the next batch that need not run alone
};

}  // namespace roundelay::execute
