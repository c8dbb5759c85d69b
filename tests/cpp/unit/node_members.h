// Members on several nodes that reduce a bucket by a technique, stepped from one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/within_node.h"
#include "tests/cpp/unit/technique_members.h"

namespace roundelay::compress {

using Gradients = std::vector<std::vector<double>>;  // of each rank

struct Shape {
  int nodes = 1, members = 1;
  [[nodiscard]] int size() const { return nodes * members; }
};

// Members of a group of this shape; the bytes that go between nodes are counted. Member i is on node
// i % nodes, as in InprocLevels.
struct NodeMembers final : TechniqueMembers {
  explicit NodeMembers(Shape shape) : NodeMembers(contract::tree_of_nodes(shape.nodes, shape.members)) {}
  // `tree` has two levels.
  explicit NodeMembers(const collective::levels::Tree& tree) : levels(tree, 0) {
    const collective::levels::Parts& nodes = tree.front();
    const bool one_each = nodes.size() == tree.back().front().size();
    for (int index = 0; index < levels.size(); ++index) {
      add([&](std::size_t& sent) -> std::unique_ptr<collective::Fabric> {
        const auto counted = [&](const InprocHub& hub, const Group& group) {
          return TechniqueMember::make_fabric(hub, group, sent);
        };
        if (one_each) return counted(levels.flat, levels.whole(index));
        if (nodes.size() == 1) {
          return contract::within_node(collective::make_inproc_fabric(levels.flat, levels.whole(index)));
        }
        return collective::make_levels_fabric(
            levels.of(index, [&](std::size_t stage, const InprocHub& hub, const Group& group) {
              if (stage > 0) return counted(hub, group);
              return contract::within_node(collective::make_inproc_fabric(hub, group));
            }));
      });
    }
  }
  using InprocHub = contract::InprocLevels::Hub;
  const contract::InprocLevels levels;
};

}  // namespace roundelay::compress
