// Carries out one reducescatter over levels: the way of an allgather (route.h) backwards, or that of a
// broadcast if one rank has the only shard. The ranks of a node add up what they have of each piece, and each
// gets a share of the sum. Shares then travel towards the owner of the piece, and the ranks on the way join
// those of the parts below them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "collective/levels/levels_run.h"
#include "collective/levels/route.h"
#include "collective/levels/route_calls.h"
#include "collective/program/scratch.h"

namespace roundelay::collective::levels {

// One call. One thread at a time. Errors: as the fabrics', and kAborted where memory has run out. An
// element's sum has the bits that an allreduce over the same levels gives it, unless a level joins more than
// kOnePlaceMembers parts (collective/tuning/select.h), or one rank has the only shard: then the sum over the
// other parts of a level is rounded before the owner's part joins it.
class SumRun {
 public:
  // `resources` and `call` outlive it. The call's arguments have been checked. A member carries out its calls
  // one after the other, in the same order as the others.
  SumRun(const LevelsResources& resources, const Call& call);
  // If the call is not over, it gives up the memory that the medium may still write to.
  ~SumRun();
  SumRun(const SumRun&) = delete;
  SumRun& operator=(const SumRun&) = delete;

  // These do what LevelsRun's functions of the same names do.
  Result<bool> advance();
  [[nodiscard]] int waiting_for() const { return calls_.waiting_for(); }
  [[nodiscard]] bool crowded() const { return calls_.crowded(); }
  Nap idle(Backoff& backoff) { return calls_.idle(backoff); }

 private:
  // A range of which this member has the sum over a part.
  struct Partial {
    ByteRange range;
    std::byte* sum;
  };
  // The way back to a fork: the sums that the other parts send, one after the other in `incoming`.
  struct Join {
    RouteFork fork;
    std::byte* incoming;
  };
  // A sum over the node that is to begin. This member gets its share in `to`.
  struct NodeSum {
    Holdings shares;
    std::byte* to;
  };
  struct Round {
    std::vector<Holdings> node_sums;  // those that are not begun
    std::vector<Partial> partials;
    std::vector<std::vector<Join>> joins;         // by hop of the way back
    std::vector<MessageList> hops;                // the same
    std::size_t hops_ended = 0, hops_joined = 0;  // a hop's sums may have to wait to be joined
    ScratchPool::Block memory;
  };

  Status advance_node_sums();
  // Returns the next call in the node; nothing: there is none, or not yet. The same order on all ranks of it.
  Result<std::optional<NodeSum>> next_node_sum();
  Status sum_in_node(const Holdings& shares, std::byte* to);
  Status start_hops();
  Status test_hops();
  Status begin_round();
  void join_ended();
  void join(Round& round, std::size_t hop);
  [[nodiscard]] Route route_of(std::uint64_t number) const;
  void place(Round& round, const Route& route, std::uint64_t number) const;
  void list_messages(Round& round, const Route& route) const;
  [[nodiscard]] bool ready(const HopTurn& turn) const;
  [[nodiscard]] Round& round(std::uint64_t number) { return rounds_[number - first_round_]; }
  [[nodiscard]] Reduction reduction(std::size_t level) const;
  // Returns the piece of this member's own shard in a round.
  [[nodiscard]] ByteRange own_piece(std::uint64_t number) const {
    return piece_of(shards_[static_cast<std::size_t>(resources_.group.index)].bytes, number, piece_bytes_);
  }

  const LevelsResources& resources_;
  const Router& router_;
  const ReducescatterCall& call_;
  const std::vector<Holding> shards_;  // by rank
  const bool rooted_;                  // one rank has the only shard, and a broadcast's way serves
  const std::vector<Scale> scales_;    // of each stage
  const std::size_t piece_bytes_;      // of one shard in a round
  const std::uint64_t round_count_;
  const std::size_t hops_;  // of a round
  RouteCalls calls_;
  std::deque<Holdings> own_sums_;  // those of the node's own shards, which are not begun
  bool own_summed_ = false;        // all of them are over
  std::deque<Round> rounds_;       // those in progress
  std::uint64_t first_round_ = 0;  // the number of the first one
  std::uint64_t summed_ = 0;       // the rounds whose sums in the node are over
};

}  // namespace roundelay::collective::levels
