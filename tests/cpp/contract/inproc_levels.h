// A group on several nodes, all in one process: one medium inside each node, one between the nodes, one for
// all. A member's index in the group is node + nodes * (index in the node).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collective/inproc/hub.h"
#include "collective/two_level/two_level_fabric.h"

namespace roundelay::contract {

struct InprocLevels {
  using Hub = std::shared_ptr<collective::InprocHub>;

  InprocLevels(int node_count, int of_each, int rank_of_first = 10)
      : nodes(node_count), members(of_each), first_rank(rank_of_first), flat(hub(size())) {
    for (int node = 0; node < nodes; ++node) inner.push_back(hub(members));
    for (int member = 0; member < members; ++member) outer.push_back(hub(nodes));
  }

  [[nodiscard]] int size() const { return nodes * members; }
  [[nodiscard]] Group whole(int index) const { return group(0, 1, size(), index); }
  [[nodiscard]] Group inside(int index) const { return group(index % nodes, nodes, members, index / nodes); }
  [[nodiscard]] Group between(int index) const {
    return group(index / nodes * nodes, 1, nodes, index % nodes);
  }
  [[nodiscard]] const Hub& hub_inside(int index) const {
    return inner[static_cast<std::size_t>(index % nodes)];
  }
  [[nodiscard]] const Hub& hub_between(int index) const {
    return outer[static_cast<std::size_t>(index / nodes)];
  }

  [[nodiscard]] collective::Levels of(int index) const {
    return {collective::make_inproc_fabric(hub_inside(index), inside(index)),
            collective::make_inproc_fabric(hub_between(index), between(index)),
            collective::make_inproc_fabric(flat, whole(index))};
  }

  // Simulates a process that has stopped: nothing that it sends arrives.
  void silence(int index) const {
    hub_inside(index)->silence(index / nodes);
    hub_between(index)->silence(index % nodes);
    flat->silence(index);
  }

  const int nodes, members, first_rank;
  Hub flat;
  std::vector<Hub> inner, outer;

 private:
  static Hub hub(int of) { return std::make_shared<collective::InprocHub>(of); }
  [[nodiscard]] Group group(int first, int step, int count, int index) const {
    Group made;
    for (int i = 0; i < count; ++i) made.ranks.push_back(first_rank + first + i * step);
    made.index = index;
    return made;
  }
};

// The media of a lane with two tracks, each of which has two levels of its own. Ranks begin with 0.
struct TwoTracks {
  TwoTracks(int nodes, int members) : one(nodes, members, 0), other(nodes, members, 0) {}
  [[nodiscard]] std::vector<std::unique_ptr<collective::Fabric>> of(int rank) const {
    std::vector<std::unique_ptr<collective::Fabric>> fabrics;
    for (const InprocLevels* levels : {&one, &other})
      fabrics.push_back(collective::make_two_level_fabric(levels->of(rank)));
    return fabrics;
  }

  const InprocLevels one, other;
};

}  // namespace roundelay::contract
