// Carries out one allreduce over levels. It is not a Task (collective/task.h), because a task waits for one
// call at a time, and here all stages have calls in progress.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/call_watch.h"
#include "collective/levels/busy_spans.h"
#include "collective/levels/levels_fabric.h"
#include "collective/levels/route.h"
#include "collective/levels/schedule.h"
#include "collective/levels/stage_run.h"
#include "collective/program/scratch.h"

namespace roundelay::collective::levels {

// A plan over levels, with the names that users see.
struct NamedLevelsPlan {
  const LevelsPlan& parts;
  const std::string algorithm;  // "levels 2x2x3"
  // The names that a call's observer (collective/call.h) gets for work between nodes, and inside them.
  const std::array<std::string, 2> stages;
};

// The objects that the calls of one member use.
struct LevelsResources {
  const Group& group;
  const std::vector<NamedLevelsPlan> plans;  // the main one first
  Fabric& flat;
  ScratchPool& scratch;
  // Plans the calls that move bytes over levels, and reducescatters; nothing: they go over `flat`. The same
  // on all members.
  const std::optional<Router> router;

  // Returns the fabric of this member's node; without stages inside nodes, that of the first stage.
  [[nodiscard]] Fabric& node() const { return *plans.front().parts.stages.front().of_groups.front(); }
  // Returns the plan that a call asks for, or the main one.
  [[nodiscard]] const NamedLevelsPlan& plan_for(const Call& call) const;
};

// One allreduce. One thread at a time. Errors: as the stages' fabrics.
class LevelsRun {
 public:
  // `resources` and `call` outlive it. `call` is an allreduce for which fits() (schedule.h) is true, and its
  // arguments have been checked. A member carries out its calls one after the other, in the same order as the
  // others.
  LevelsRun(const LevelsResources& resources, const Call& call);

  // Moves the call on, and does not block. Returns whether it is over.
  Result<bool> advance();
  // These do what PendingCall's functions of the same names do (collective/fabric.h).
  [[nodiscard]] int waiting_for() const;
  [[nodiscard]] bool crowded() const;
  Nap idle(Backoff& backoff);

 private:
  // Starts the steps of a stage that may start now, and tests those in progress.
  Status advance(std::size_t stage);
  // Returns whether the stage's next step may start: the chunk has passed the stage before.
  [[nodiscard]] bool may_start(std::size_t stage) const;
  Status start(std::size_t stage, const StageStep& step);
  // Returns the call of a step on one share; nothing if the share has no bytes in this chunk.
  [[nodiscard]] std::optional<Call> call_of(std::size_t stage, const Share& share,
                                            const StageStep& step) const;
  [[nodiscard]] CallOptions options() const;
  [[nodiscard]] Reduction reduction(std::size_t stage) const;
  // Notes whether there is work inside the node and between nodes.
  void observe();
  [[nodiscard]] bool busy(bool in_node) const;

  const LevelsResources& resources_;
  const AllreduceCall& call_;
  const NamedLevelsPlan& named_;
  const LevelsPlan& parts_;
  const Chunks chunks_;
  const std::vector<Scale> scales_;  // one for each stage
  std::vector<StageRun> stages_;
  std::uint64_t moves_ = 0;          // the number of steps that have ended
  std::uint64_t moves_at_idle_ = 0;  // the value of moves_ at the last idle()
  BusySpans spans_;
};

}  // namespace roundelay::collective::levels
