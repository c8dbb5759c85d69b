// A group on several levels, all in one process: a medium for each group of each stage, one for all.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collective/inproc/hub.h"
#include "collective/levels/levels_fabric.h"
#include "collective/levels/places.h"
#include "collective/levels/plan.h"
#include "execute/lane_executors.h"
#include "tests/cpp/contract/within_node.h"

namespace roundelay::contract {

// Returns the tree of nodes with as many members each. Member `index` is on node `index % nodes`.
inline collective::levels::Tree tree_of_nodes(int nodes, int of_each) {
  collective::levels::Parts parts(static_cast<std::size_t>(nodes)), all(1);
  for (int index = 0; index < nodes * of_each; ++index) {
    parts[static_cast<std::size_t>(index % nodes)].push_back(index);
    all.front().push_back(index);
  }
  return {parts, all};
}

class InprocLevels {
 public:
  using Hub = std::shared_ptr<collective::InprocHub>;

  // The first stage is inside nodes, the others between them.
  explicit InprocLevels(const collective::levels::Tree& tree, int rank_of_first = 10)
      : tree_(tree), first_rank_(rank_of_first) {
    const int size = static_cast<int>(tree.back().front().size());
    flat = std::make_shared<collective::InprocHub>(size);
    for (int index = 0; index < size; ++index) {
      plans.push_back(collective::levels::plan_of_member(tree, index));
      for (std::size_t stage = 0; stage < plans.back().stages.size(); ++stage) {
        for (const auto& members : plans.back().stages[stage].groups) add_hub(stage, members);
      }
      if (!plans.back().even()) add_hub(kPeers, peers_of(index));
    }
  }
  InprocLevels(int nodes, int of_each, int rank_of_first = 10)
      : InprocLevels(tree_of_nodes(nodes, of_each), rank_of_first) {}

  [[nodiscard]] int size() const { return static_cast<int>(plans.size()); }
  [[nodiscard]] std::size_t stages() const { return plans.front().stages.size(); }
  [[nodiscard]] Group whole(int index) const {
    Group made;
    for (int member = 0; member < size(); ++member) made.ranks.push_back(first_rank_ + member);
    made.index = index;
    return made;
  }
  // Return a member's groups in a stage: all of them, and the first one with its medium.
  [[nodiscard]] std::vector<Group> groups(std::size_t stage, int index) const {
    std::vector<Group> made;
    for (const auto& members : stage_of(stage, index).groups) made.push_back(group_of(members));
    return made;
  }
  [[nodiscard]] Group group(std::size_t stage, int index) const { return groups(stage, index).front(); }
  [[nodiscard]] const Hub& hub(std::size_t stage, int index, std::size_t group = 0) const {
    return hubs_.at({stage, stage_of(stage, index).groups[group].ranks});
  }

  [[nodiscard]] collective::LevelsParts of(int index, collective::LevelsCut cut = {}) const {
    const auto make = [](std::size_t stage, const Hub& hub, const Group& group) {
      auto made = collective::make_inproc_fabric(hub, group);
      return stage == 0 ? within_node(std::move(made)) : std::move(made);
    };
    return of(index, make, cut);
  }
  // `make(stage, hub, group)` makes the fabrics of the stages.
  template <class Make>
  [[nodiscard]] collective::LevelsParts of(int index, const Make& make,
                                           collective::LevelsCut cut = {}) const {
    collective::LevelsParts parts{.main = {plans[static_cast<std::size_t>(index)], {}, cut},
                                  .flat = collective::make_inproc_fabric(flat, whole(index)),
                                  .tree = tree_};
    for (std::size_t stage = 0; stage < stages(); ++stage) {
      collective::StageFabrics& fabrics = parts.main.stages.emplace_back();
      fabrics.in_node = stage == 0;
      const std::vector<Group> own = groups(stage, index);
      for (std::size_t i = 0; i < own.size(); ++i) {
        fabrics.of_groups.push_back(make(stage, hub(stage, index, i), own[i]));
      }
    }
    if (!plans[static_cast<std::size_t>(index)].even()) {
      const collective::levels::Members peers = peers_of(index);
      parts.peers = make(1, hubs_.at({kPeers, peers.ranks}), group_of(peers));
    }
    return parts;
  }

  // Simulates a process that has stopped: nothing that it sends arrives. One of a stage: nothing there.
  void silence(int index) const {
    for (std::size_t stage = 0; stage < stages(); ++stage) silence_in(stage, index);
    flat->silence(index);
  }
  void silence_in(std::size_t stage, int index) const {
    for_each_medium(stage, index, [](collective::InprocHub& hub, int own) { hub.silence(own); });
  }
  // Simulates a process that has died: its connections are lost.
  void lose(int index) const {
    for (std::size_t stage = 0; stage < stages(); ++stage) {
      for_each_medium(stage, index, [](collective::InprocHub& hub, int own) { hub.fail(own); });
    }
    flat->fail(index);
  }

  std::vector<collective::levels::MemberPlan> plans;  // by index
  Hub flat;

 private:
  template <class Change>
  void for_each_medium(std::size_t stage, int index, const Change& change) const {
    const auto& groups = stage_of(stage, index).groups;
    for (std::size_t i = 0; i < groups.size(); ++i) change(*hub(stage, index, i), groups[i].index);
  }
  void add_hub(std::size_t stage, const collective::levels::Members& members) {
    Hub& hub = hubs_[{stage, members.ranks}];
    if (!hub) hub = std::make_shared<collective::InprocHub>(members.size());
  }
  [[nodiscard]] collective::levels::Members peers_of(int index) const {
    return collective::levels::peers_of(tree_.front(), index);
  }
  [[nodiscard]] Group group_of(const collective::levels::Members& members) const {
    Group group;
    for (const int member : members.ranks) group.ranks.push_back(first_rank_ + member);
    group.index = members.index;
    return group;
  }
  [[nodiscard]] const collective::levels::MemberStage& stage_of(std::size_t stage, int index) const {
    return plans[static_cast<std::size_t>(index)].stages[stage];
  }

  static constexpr std::size_t kPeers = 1000;  // stands for a stage among the hubs
  const collective::levels::Tree tree_;
  const int first_rank_;
  std::map<std::pair<std::size_t, std::vector<int>>, Hub> hubs_;  // by stage and members
};

// The media of a lane with two executors, each of which has a fabric over two levels of its own. Ranks begin
// with 0.
struct TwoFabrics {
  explicit TwoFabrics(const collective::levels::Tree& tree) : one(tree, 0), other(tree, 0) {}
  TwoFabrics(int nodes, int members) : TwoFabrics(tree_of_nodes(nodes, members)) {}
  [[nodiscard]] execute::LaneFabrics of(int rank) const {
    execute::LaneFabrics fabrics;
    for (const InprocLevels* levels : {&one, &other})
      fabrics.all.push_back(collective::make_levels_fabric(levels->of(rank)));
    return fabrics;
  }

  const InprocLevels one, other;
};

}  // namespace roundelay::contract
