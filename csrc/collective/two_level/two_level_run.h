// Carries out one allreduce over two levels.
//
// It is no Task (collective/task.h): a task waits for one call at a time, and here a step inside the node and
// several allreduces between the nodes are in progress at once.
#pragma once

#include <deque>
#include <memory>

#include "collective/call_watch.h"
#include "collective/fabric.h"
#include "collective/two_level/schedule.h"
#include "collective/two_level/two_level_fabric.h"

namespace roundelay::collective::two_level {

// The objects that the calls of one member use.
struct TwoLevelResources {
  Fabric& inner;
  Fabric& outer;
  const Group& group;
  const LevelsCut cut;
};

// One allreduce. One thread at a time. Errors: as the inner and the outer fabric.
class TwoLevelRun {
 public:
  // Both outlive it. `call` is an allreduce that fits(), and has been checked. A member carries out its
  // calls one after the other, in the same order as the others.
  TwoLevelRun(const TwoLevelResources& resources, const Call& call);

  // Moves the call on without blocking. True: it is over.
  Result<bool> advance();
  // Implements CallQueue's interrupted(). Returns no error: the fabrics of the levels watch their own calls,
  // and one of them always has one.
  [[nodiscard]] static Status interrupted(const CallWatch& /*watch*/) { return {}; }
  [[nodiscard]] int waiting_for() const;
  [[nodiscard]] bool crowded() const;
  Nap idle(Backoff& backoff);

 private:
  Status inside();   // starts and tests the steps inside the node
  Status between();  // starts and tests the allreduces between the nodes
  Status start_step();
  Status start_crossing();
  // Tells the call's observer that a level was busy until now.
  void tell(std::size_t level, TimePoint since) const;
  // Return the calls of a chunk: the reduce-scatter inside, the allreduce between, the all-gather inside.
  [[nodiscard]] Call scatter(std::uint64_t chunk) const;
  [[nodiscard]] Call cross(std::uint64_t chunk) const;
  [[nodiscard]] Call gather(std::uint64_t chunk) const;
  [[nodiscard]] CallOptions options() const;
  [[nodiscard]] Reduction reduction(Scale prescale, Scale scale) const;
  [[nodiscard]] ByteSpan bytes_at(ByteRange range) const;
  [[nodiscard]] ByteRange own_shard(std::uint64_t chunk) const;
  // Returns the index in the whole group of a member of one of the fabrics.
  [[nodiscard]] int in_group(const Fabric& fabric, int member) const;

  const TwoLevelResources& resources_;
  const AllreduceCall& call_;
  const Chunks chunks_;
  const LevelScales scales_;
  StepOrder order_;
  std::unique_ptr<Pending> step_;  // the step inside the node; null: none is in progress
  // The allreduces between the nodes, in the order of chunks; null when over. The first one is of chunk
  // crossed_.
  std::deque<std::unique_ptr<Pending>> crossing_;
  std::uint64_t scattered_ = 0, crossed_ = 0;  // how many chunks have been
  std::uint64_t moves_ = 0;                    // how many steps and allreduces have ended
  std::uint64_t moves_at_idle_ = 0;            // at the last idle()
  // Since when `step_` and `crossing_` have something, for the observer.
  TimePoint inside_since_{}, between_since_{};
};

}  // namespace roundelay::collective::two_level
