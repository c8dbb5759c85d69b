// Carries out one call that moves bytes over levels, an allgather or a broadcast, as its route says
// (route.h). Between nodes bytes travel as messages from and to the call's own memory. Then the node gathers
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "collective/levels/levels_run.h"
#include "collective/levels/route.h"
#include "collective/levels/route_calls.h"

namespace roundelay::collective::levels {

// One call. One thread at a time. Errors: as the fabrics'.
class MoveRun {
 public:
  // `resources` and `call` outlive it. The call's arguments have been checked. A member carries out its calls
  // one after the other, in the same order as the others.
  MoveRun(const LevelsResources& resources, const Call& call);

  // These do what LevelsRun's functions of the same names do.
  Result<bool> advance();
  [[nodiscard]] int waiting_for() const { return calls_.waiting_for(); }
  [[nodiscard]] bool crowded() const { return calls_.crowded(); }
  Nap idle(Backoff& backoff) { return calls_.idle(backoff); }

 private:
  // What a round has still to do.
  struct Round {
    std::vector<MessageList> hops;
    std::vector<Holdings> gathers;  // after all hops
    std::size_t hops_done = 0;
  };
  // Where the call's bytes lie, and which rank has which of them at first.
  struct Layout {
    std::byte* memory = nullptr;
    const Region* region = nullptr;
    std::vector<Holding> given;  // by rank; of a broadcast that of the root alone
    // Where an allgather has this member's part until its node has gathered it: sending it needs no copy.
    const std::byte* own_part = nullptr;
  };
  static Layout layout_of(const AllgatherCall& call);
  static Layout layout_of(const BroadcastCall& call);
  static Layout layout_of(const Call& call);

  Status start_hops();
  Status test_hops();
  Status advance_gathers();
  [[nodiscard]] Round round_of(std::uint64_t number) const;
  // Returns where this member has bytes that it sends.
  [[nodiscard]] const std::byte* source_of(const ByteRange& bytes) const;
  [[nodiscard]] AllgatherCall gather_of(const Holdings& held) const;

  const LevelsResources& resources_;
  const Router& router_;
  const bool gathers_whole_;  // an allgather; false: a broadcast
  const Layout layout_;
  const std::size_t piece_bytes_;  // of one rank's bytes in a round
  const std::size_t hops_;         // of a round
  RouteCalls calls_;
  std::deque<Round> rounds_;       // those that have begun and have hops to do
  std::uint64_t first_round_ = 0;  // the number of the first one
  std::deque<Holdings> gathers_;   // those that may begin
};

}  // namespace roundelay::collective::levels
