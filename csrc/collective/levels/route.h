// The ways of bytes over levels, for operations that move them. Pure: all members compute the same ways.
//
// A part of a level *has* a range of bytes if each of them lies with one of its ranks: its holders. The parts
// within a part bring each other what they have, from the outside in: each holder sends its bytes once to
// each other part, where ranks share them out as evenly as they can. So every byte enters every part of every
// level once. In the innermost parts (nodes) each rank then gathers what the others hold. A sum of what all
// ranks have goes the same way backwards, and every part adds up its own before anything leaves it.
//
// What comes from one root would leave its part as often as there are others. Therefore the root sends each
// of the others a share, and these bring each other their shares. Only few bytes go straight to all. A sum of
// what all ranks have that one root gets goes this way backwards: others add up a share each.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "collective/levels/plan.h"

namespace roundelay::collective::levels {

// Bytes that lie with one rank. Ranks are indices in the group.
struct Holding {
  int rank = 0;
  ByteRange bytes{};
};

// The holdings of the ranks of one part, side by side, in the order of the part's ranks. None is empty.
using Holdings = std::vector<Holding>;

// Returns the range from the first holding to the last one.
inline ByteRange range_of(const Holdings& held) {
  const ByteRange last = held.back().bytes;
  return {held.front().bytes.offset, last.offset + last.bytes - held.front().bytes.offset};
}

// Joins lists that follow each other in memory as in the ranks: one call in the node takes them together.
void join_neighbours(std::vector<Holdings>& lists);

struct RouteMessage {
  int from = 0, to = 0;
  ByteRange bytes{};
  std::size_t part = 0;  // the receiver's index among the parts that bring each other what they have
};

// A place where bytes leave this member for other parts. The way back joins what comes from these.
struct RouteFork {
  ByteRange bytes{};
  std::size_t level = 0;            // of the tree
  std::size_t part = 0, parts = 1;  // this member's part among those that bring each other what they have
  bool last = true;                 // the way back joins no more parts of this level
};

// What one member has to do for some ranges.
struct Route {
  explicit Route(std::size_t hop_count) : hops(hop_count), forks(hop_count) {}

  // By hop: a member has what it sends in one hop when it has received that of all hops before.
  std::vector<std::vector<RouteMessage>> hops;
  std::vector<std::vector<RouteFork>> forks;
  // The ranges that its node then gathers, one after the other.
  std::vector<Holdings> gathers;
};

// Plans for one member. Any thread.
class Router {
 public:
  // `tree` has two levels at least.
  Router(Tree tree, int rank);

  // Return the number of hops of a way, which is the same for all ranges.
  [[nodiscard]] std::size_t gather_hops() const { return tree_.size() - 1; }
  [[nodiscard]] std::size_t broadcast_hops() const;
  [[nodiscard]] std::size_t nodes() const { return tree_.front().size(); }
  // Returns the ranks of this member's node, ascending.
  [[nodiscard]] const std::vector<int>& node() const { return tree_.front()[part_of(0, rank_)]; }

  // Add the way of a range from the one rank that has it to all ranks. A range of an allgather goes to those
  // of other nodes: the ranks of a node gather all that they have themselves at once. `route` has as many
  // hops as the functions above say.
  void add_gathered(const Holding& from, Route& route) const;
  void add_broadcast(const Holding& root, Route& route) const;

 private:
  // A part of a level.
  struct Place {
    std::size_t level = 0, part = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };

  void deliver(Place place, const Holdings& held, std::size_t hop, Route& route) const;
  void spread(Place place, const Holding& root, std::size_t hop, Route& route) const;
  void fork(const Holdings& held, RouteFork made, std::size_t hop, Route& route) const;
  void give(const Holdings& held, Place to, std::size_t part, std::size_t hop, std::size_t next_hop,
            Route& route) const;
  [[nodiscard]] Holdings shares_of(ByteRange range, int source, Place place) const;
  [[nodiscard]] Place top() const { return {tree_.size() - 1, 0}; }
  [[nodiscard]] std::vector<Place> within(Place place) const;
  [[nodiscard]] std::size_t part_of(std::size_t level, int rank) const {
    return part_of_[level][static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool has(Place place, int rank) const { return part_of(place.level, rank) == place.part; }

  const Tree tree_;
  const int rank_;
  std::vector<std::vector<std::size_t>> part_of_;                // by level and rank
  std::vector<std::vector<std::vector<std::size_t>>> children_;  // by level and part; none of level 0
  Tree in_order_;  // each part's ranks, those of one child beside each other
};

}  // namespace roundelay::collective::levels
