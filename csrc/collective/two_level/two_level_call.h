// One allreduce over two levels, in progress.
#pragma once

#include <deque>
#include <memory>

#include "collective/call_watch.h"
#include "collective/fabric.h"
#include "collective/two_level/schedule.h"
#include "collective/two_level/two_level_fabric.h"

namespace roundelay::collective::two_level {

// What the calls of one member work with.
struct TwoLevelResources {
  Fabric& inner;
  Fabric& outer;
  const Group& group;
  const LevelsCut cut;
};

class TwoLevelCall {
 public:
  // Both outlive it. `call` has been checked; the members' calls are carried out one after the other, in
  // one order.
  TwoLevelCall(const TwoLevelResources& resources, const Call& call);

  // Moves it on without blocking. True: it is over.
  Result<bool> advance();
  // Its steps look after themselves, and there is always one.
  [[nodiscard]] static Status interrupted(const CallWatch& /*watch*/) { return {}; }
  [[nodiscard]] int waiting_for() const;
  [[nodiscard]] bool crowded() const;
  Nap idle(Backoff& backoff);

 private:
  Status inside();   // starts and tests the node's steps
  Status between();  // starts and tests what is on the wire
  Status start_step();
  Status start_crossing();
  [[nodiscard]] Call scatter(std::uint64_t chunk) const;
  [[nodiscard]] Call cross(std::uint64_t chunk) const;
  [[nodiscard]] Call gather(std::uint64_t chunk) const;
  [[nodiscard]] CallOptions options() const;
  [[nodiscard]] Reduction reduction(Scale prescale, Scale scale) const;
  [[nodiscard]] ByteSpan bytes_at(ByteRange range) const;
  [[nodiscard]] ByteRange own_shard(std::uint64_t chunk) const;
  // Of a member of one of the fabrics: its index in the whole group.
  [[nodiscard]] int in_group(const Fabric& fabric, int member) const;

  const TwoLevelResources& resources_;
  const AllreduceCall& call_;
  const Chunks chunks_;
  const Scales scales_;
  StepOrder order_;
  std::unique_ptr<Pending> step_;
  // In the order of chunks; null when done. The first one is of chunk `crossed_`.
  std::deque<std::unique_ptr<Pending>> crossing_;
  std::uint64_t scattered_ = 0, crossed_ = 0;
  bool moved_ = false;  // a step has ended since the last idle()
};

}  // namespace roundelay::collective::two_level
