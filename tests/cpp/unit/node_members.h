// Members on several nodes that reduce a bucket by a technique, stepped from one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/unit/technique_members.h"

namespace roundelay::compress {

using Gradients = std::vector<std::vector<double>>;  // of each rank

struct Shape {
  int nodes = 1, members = 1;
  [[nodiscard]] int size() const { return nodes * members; }
};

// Makes a fabric one of a node.
class WithinNode final : public collective::Fabric {
 public:
  explicit WithinNode(std::unique_ptr<Fabric> inner)
      : Fabric({.within_node = true}), inner_(std::move(inner)) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const Group& group() const override { return inner_->group(); }
  Result<std::unique_ptr<collective::Pending>> start(const collective::Call& call) override {
    return inner_->start(call);
  }
  [[nodiscard]] bool any_thread() const override { return true; }
  [[nodiscard]] bool poisoned() const override { return inner_->poisoned(); }
  [[nodiscard]] std::span<Fabric* const> levels() override { return flat(); }

 private:
  const std::unique_ptr<Fabric> inner_;
};

// Members of a group of this shape; the bytes that go between nodes are counted. Member i is on node
// i % nodes, as in InprocLevels.
struct NodeMembers final : TechniqueMembers {
  explicit NodeMembers(Shape shape) : levels(shape.nodes, shape.members, 0) {
    for (int index = 0; index < shape.size(); ++index) {
      add([&](std::size_t& sent) -> std::unique_ptr<collective::Fabric> {
        const auto counted = [&](const InprocHub& hub, const Group& group) {
          return TechniqueMember::make_fabric(hub, group, sent);
        };
        if (shape.members == 1) return counted(levels.flat, levels.whole(index));
        auto inner = collective::make_inproc_fabric(levels.hub_inside(index), levels.inside(index));
        if (shape.nodes == 1) return std::make_unique<WithinNode>(std::move(inner));
        return collective::make_two_level_fabric(
            {std::move(inner), counted(levels.hub_between(index), levels.between(index)),
             collective::make_inproc_fabric(levels.flat, levels.whole(index))});
      });
    }
  }
  using InprocHub = contract::InprocLevels::Hub;
  const contract::InprocLevels levels;
};

}  // namespace roundelay::compress
