// Members on several nodes that reduce a bucket by a technique, stepped from one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/within_node.h"
#include "tests/cpp/unit/kernels_reference.h"
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

// Gives the members these gradients, in their buckets' type.
inline void bring(TechniqueMembers& group, const Gradients& gradients) {
  for (std::size_t m = 0; m < gradients.size(); ++m) {
    TechniqueMember& member = *group.members[m];
    const DType dtype = member.bucket.reduction.dtype;
    for (std::size_t i = 0; i < gradients[m].size(); ++i)
      kernels::reference::write(dtype, member.bytes.data() + i * size_of(dtype), gradients[m][i]);
  }
}

inline std::vector<double> elements(const TechniqueMember& member) {
  const DType dtype = member.bucket.reduction.dtype;
  std::vector<double> found(member.bucket.count);
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i] = kernels::reference::read(dtype, member.bytes.data() + i * size_of(dtype));
  return found;
}

// Returns what a member keeps, at the bucket's indices.
inline std::vector<double> kept(const TechniqueMember& member, const Slice& shard) {
  const DType type = kernels::residual_type(member.bucket.reduction.dtype);
  std::vector<double> found(member.bucket.count);
  for (std::size_t i = 0; i < shard.count; ++i)
    found[shard.first + i] = kernels::reference::read(type, member.bucket.state.data() + i * size_of(type));
  return found;
}

inline void require_alike(const TechniqueMembers& group) {
  for (const auto& member : group.members) REQUIRE(member->bytes == group.members.front()->bytes);
}

}  // namespace roundelay::compress
