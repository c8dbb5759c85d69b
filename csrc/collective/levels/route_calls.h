// The calls of one member that carry out a call's routes (route.h): messages between nodes over the flat
// fabric, several hops at once, and one call at a time inside the node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "collective/levels/busy_spans.h"
#include "collective/levels/levels_run.h"
#include "collective/levels/move_order.h"

namespace roundelay::collective::levels {

// One thread at a time. Errors: as the fabrics'.
class RouteCalls {
 public:
  // `resources` and `call` outlive it, and the resources have a router.
  RouteCalls(const LevelsResources& resources, const Call& call, std::uint64_t rounds, std::size_t hops);

  // Returns the hop that may begin, if there is room for it and what it needs is there; nothing otherwise.
  [[nodiscard]] std::optional<HopTurn> next_hop() const;
  // Begins this hop. The list outlives it.
  Status start_hop(const MessageList& messages);
  // Tests the hops in progress. Calls ended(turn) for each that has ended.
  template <typename Ended>
  Status test_hops(const Ended& ended) {
    for (auto hop = hops_.begin(); hop != hops_.end();) {
      const Result<bool> done = hop->pending->test();
      if (!done.ok()) return done.status();
      if (!*done) {
        ++hop;
        continue;
      }
      const HopTurn turn = hop->turn;
      hop = hops_.erase(hop);
      ++moves_;
      ended(turn);
    }
    spans_.note(false, !hops_.empty());
    return {};
  }

  // Begins a call inside the node, where none is in progress. Only for nodes of several members.
  Status start_in_node(const Call& call);
  // Returns whether no call is in progress inside the node, which it tests.
  Result<bool> node_idle();

  // Returns whether all hops have ended.
  [[nodiscard]] bool all_hops_ended() const { return order_.over() && hops_.empty(); }
  // Returns the number of hops and of calls inside the node that have ended.
  [[nodiscard]] std::uint64_t moves() const { return moves_; }
  // Does what HopOrder's function of this name does.
  [[nodiscard]] std::uint64_t rounds_ahead() const { return order_.rounds_ahead(); }
  // Returns the options of the call that the calls of its routes have, too.
  [[nodiscard]] CallOptions options() const;
  // These do what PendingCall's functions of the same names do (collective/fabric.h).
  [[nodiscard]] int waiting_for() const;
  [[nodiscard]] bool crowded() const;
  Nap idle(Backoff& backoff);

 private:
  struct Hop {
    HopTurn turn;
    std::unique_ptr<PendingCall> pending;
  };

  const LevelsResources& resources_;
  const CallOptions& given_;
  const std::uint64_t most_hops_;
  HopOrder order_;
  std::deque<Hop> hops_;  // in the order of their beginning
  std::unique_ptr<PendingCall> in_node_;
  std::uint64_t moves_ = 0;
  std::uint64_t moves_at_idle_ = 0;  // the value of moves_ at the last idle()
  BusySpans spans_;
};

// Returns the holdings of the ranks of a node. Ranks that follow each other in the group have theirs side by
// side, and are in one list. `all`: by rank.
std::vector<Holdings> holdings_of_node(const std::vector<int>& node, const std::vector<Holding>& all);

// Returns the piece of a range that moves in a round.
ByteRange piece_of(const ByteRange& whole, std::uint64_t round, std::size_t bytes);

// Returns the number of rounds in which pieces of all these holdings move; at least one.
std::uint64_t rounds_of(const std::vector<Holding>& all, std::size_t piece_bytes);

}  // namespace roundelay::collective::levels
