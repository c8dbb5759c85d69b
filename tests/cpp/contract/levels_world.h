// Shapes of clusters, and their members' fabrics over levels in one process.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/shm/shm_fabric.h"
#include "collective/single/single_fabric.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/shm_world.h"

namespace roundelay::contract {

struct ClusterShape {
  std::string name;
  collective::levels::Tree tree;
  bool shared = true;  // shared memory inside the nodes, else inproc

  [[nodiscard]] int size() const { return static_cast<int>(tree.back().front().size()); }
  // Returns whether the members of a stage's groups, on all members, are equally many.
  [[nodiscard]] bool even() const { return collective::levels::plan_of_member(tree, 0).even(); }
};

inline ClusterShape nodes_of(int nodes, int of_each, bool shared = true) {
  std::string name = std::to_string(nodes) + " nodes of " + std::to_string(of_each);
  if (!shared) name += ", no memory shared";
  return {std::move(name), tree_of_nodes(nodes, of_each), shared};
}

inline ClusterShape by_factors(const std::vector<int>& factors) {
  std::string name;
  for (const int factor : factors) name += (name.empty() ? "" : " x ") + std::to_string(factor);
  return {name, collective::levels::tree_of_factors(factors)};
}

// Nodes of 1 and 3 members, of 2 and 4, and of 3 and 4.
inline ClusterShape one_and_three() { return {"1 + 3", {{{0}, {1, 2, 3}}, {{0, 1, 2, 3}}}}; }
inline ClusterShape two_and_four() { return {"2 + 4", {{{0, 3}, {1, 2, 4, 5}}, {{0, 1, 2, 3, 4, 5}}}}; }
inline ClusterShape three_and_four() {
  return {"3 + 4", {{{0, 1, 2}, {3, 4, 5, 6}}, {{0, 1, 2, 3, 4, 5, 6}}}};
}

// One rack has nodes of 1 and 2 members, the other one of 3. Ranks are dealt out in turn.
inline ClusterShape uneven_racks() {
  return {"(1 + 2) + 3", {{{0}, {1, 4}, {2, 3, 5}}, {{0, 1, 4}, {2, 3, 5}}, {{0, 1, 2, 3, 4, 5}}}};
}

// All shapes: 8 members in every factorisation, and clusters whose nodes and racks differ.
inline std::vector<ClusterShape> cluster_shapes() {
  return {nodes_of(2, 2),        nodes_of(2, 3),     nodes_of(3, 2),     nodes_of(2, 2, false),
          by_factors({1, 8}),    by_factors({2, 4}), by_factors({4, 2}), by_factors({2, 2, 2}),
          by_factors({2, 2, 3}), one_and_three(),    three_and_four(),   uneven_racks()};
}

struct LevelsWorld {
  explicit LevelsWorld(ClusterShape of, collective::LevelsCut cut = {})
      : shape(std::move(of)), levels(shape.tree) {
    for (int index = 0; index < shape.size(); ++index) {
      fabrics.push_back(collective::make_levels_fabric(parts(index, cut)));
    }
  }

  // Returns a member's parts. Nodes share memory if the shape says so.
  [[nodiscard]] collective::LevelsParts parts(int index, collective::LevelsCut cut) {
    collective::LevelsParts own = levels.of(index, cut);
    if (!shape.shared) return own;
    const Group inside = levels.group(0, index);
    auto& [memory, regions] = nodes[inside.ranks];
    if (!memory) memory = segment_memory(inside.size());
    if (!regions) regions = std::make_shared<CommonRegions>();
    if (inside.size() == 1) {
      own.main.stages[0].of_groups[0] = std::make_unique<collective::SingleFabric>(inside);
    } else {
      own.main.stages[0].of_groups[0] = collective::make_shm_fabric(
          memory, inside, {inside.size() > 2, CommonRegions::maker(regions, inside)});
    }
    return own;
  }

  struct Node {
    std::shared_ptr<std::byte> memory;
    std::shared_ptr<CommonRegions> regions;
  };

  const ClusterShape shape;
  const InprocLevels levels;
  std::map<std::vector<int>, Node> nodes;  // by ranks
  std::vector<std::unique_ptr<Fabric>> fabrics;
};

class LevelsMedium final : public Medium {
 public:
  explicit LevelsMedium(ClusterShape shape, collective::LevelsCut cut = {})
      : shape_(std::move(shape)), cut_(cut) {}
  [[nodiscard]] int largest_group() const override { return shape_.size(); }
  std::string run(int /*size*/, Select /*select*/, const Part& part) override {
    return run_on_threads(LevelsWorld(shape_, cut_).fabrics, part);
  }

 private:
  const ClusterShape shape_;
  const collective::LevelsCut cut_;
};

// A fabric that counts its calls in progress.
class WatchedFabric final : public Fabric {
 public:
  WatchedFabric(std::unique_ptr<Fabric> inner, int& running) : inner_(std::move(inner)), running_(running) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const Group& group() const override { return inner_->group(); }
  [[nodiscard]] bool any_thread() const override { return inner_->any_thread(); }
  [[nodiscard]] bool poisoned() const override { return inner_->poisoned(); }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }
  Result<std::unique_ptr<collective::PendingCall>> start(const Call& call) override {
    auto started = inner_->start(call);
    if (!started.ok()) return started.status();
    return std::unique_ptr<collective::PendingCall>(
        std::make_unique<Counted>(std::move(started).value(), running_));
  }

 private:
  class Counted final : public collective::PendingCall {
   public:
    Counted(std::unique_ptr<collective::PendingCall> inner, int& running)
        : inner_(std::move(inner)), running_(running) {
      ++running_;
    }
    ~Counted() override { --running_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    Result<bool> test() override { return inner_->test(); }

   private:
    const std::unique_ptr<collective::PendingCall> inner_;
    int& running_;
  };

  const std::unique_ptr<Fabric> inner_;
  int& running_;
};

// Members without shared memory, whose calls in progress are counted.
struct WatchedWorld {
  explicit WatchedWorld(const ClusterShape& shape, collective::LevelsCut cut) : levels(shape.tree) {
    const auto size = static_cast<std::size_t>(shape.size());
    running.assign(size, std::vector<int>(levels.stages(), 0));
    for (std::size_t i = 0; i < size; ++i) {
      const auto watched = [&](std::size_t stage, const InprocLevels::Hub& hub, const Group& group) {
        return std::make_unique<WatchedFabric>(collective::make_inproc_fabric(hub, group), running[i][stage]);
      };
      fabrics.push_back(collective::make_levels_fabric(levels.of(static_cast<int>(i), watched, cut)));
    }
  }

  const InprocLevels levels;
  std::vector<std::vector<int>> running;  // by member and stage
  std::vector<std::unique_ptr<Fabric>> fabrics;
};

// One member's allreduce of its index.
struct LevelsMember {
  std::vector<float> data;
  std::unique_ptr<collective::PendingCall> pending{};
  bool over = false;
  Status error;
};

// Starts the allreduce of every member.
std::vector<LevelsMember> start_all(const std::vector<std::unique_ptr<Fabric>>& fabrics, std::size_t count,
                                    Deadline deadline = Deadline::never(), const AbortToken* abort = nullptr);

// Tests members in random order from this one thread, often one many times, until each is over: done, failed,
// or declared so by `after`, which is called after each turn.
void step_to_end(std::vector<LevelsMember>& members, unsigned seed, const std::function<void()>& after = {});

}  // namespace roundelay::contract
