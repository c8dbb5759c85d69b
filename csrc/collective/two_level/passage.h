// One allreduce over two levels, in progress.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "collective/fabric.h"
#include "collective/two_level/schedule.h"

namespace roundelay::collective::two_level {

class Passage {
 public:
  // All of these outlive it. `call` has been checked; the members' passages are carried out one after the
  // other, in one order.
  Passage(Fabric& inner, Fabric& outer, const Group& group, const Call& call);

  // Moves it on without blocking. True: it is over.
  Result<bool> advance();
  // Whether a step has ended since this was asked last.
  bool moved() { return std::exchange(moved_, false); }
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
  [[nodiscard]] Call part_of_call(Operation operation, std::uint64_t chunk) const;
  [[nodiscard]] Range own_shard(std::uint64_t chunk) const;
  // Of a member of one of the fabrics: its index in the whole group.
  [[nodiscard]] int in_group(const Fabric& fabric, int member) const;

  Fabric& inner_;
  Fabric& outer_;
  const Group& group_;
  const Call& call_;
  const Chunks chunks_;
  const Scales scales_;
  Order order_;
  std::unique_ptr<Pending> step_;
  // In the order of chunks; null when done. The first one is of chunk `crossed_`.
  std::deque<std::unique_ptr<Pending>> crossing_;
  std::uint64_t scattered_ = 0, crossed_ = 0;
  bool moved_ = false;
};

}  // namespace roundelay::collective::two_level
