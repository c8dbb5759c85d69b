#include "collective/levels/levels_fabric.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "collective/check.h"
#include "collective/levels/levels_run.h"
#include "collective/levels/move_run.h"
#include "collective/levels/places.h"
#include "collective/levels/schedule.h"
#include "collective/levels/sum_run.h"
#include "collective/queued_call.h"

namespace roundelay::collective {
namespace {

// Returns all fabrics of the stages, the first stage's first.
std::vector<Fabric*> fabrics_of(const LevelsPlan& parts) {
  std::vector<Fabric*> all;
  for (const StageFabrics& stage : parts.stages) {
    for (const auto& fabric : stage.of_groups) all.push_back(fabric.get());
  }
  return all;
}

// Returns the media's names, from the inside out: "shm+mpi".
std::string name_of(const LevelsPlan& parts) {
  std::string name;
  std::string_view last;
  for (const Fabric* const fabric : fabrics_of(parts)) {
    if (fabric->group().size() == 1 || fabric->name() == last) continue;
    last = fabric->name();
    name.append(name.empty() ? "" : "+").append(last);
  }
  return name;
}

// Returns "between nodes: 2 x 3", or the same inside the node.
std::string stages_of(const LevelsPlan& parts, bool in_node) {
  std::string text;
  for (std::size_t stage = 0; stage < parts.stages.size(); ++stage) {
    if (parts.stages[stage].in_node != in_node) continue;
    text += (text.empty() ? in_node ? "in the node: " : "between nodes: " : " x ");
    text += std::to_string(parts.plan.stages[stage].members);
  }
  return text;
}

// Returns "levels 2x2x3": the members of each stage's groups, from the inside out.
std::string levels_text(const levels::MemberPlan& plan) {
  std::string text;
  for (const auto& stage : plan.stages) {
    text += (text.empty() ? "levels " : "x") + std::to_string(stage.members);
  }
  return text;
}

levels::NamedLevelsPlan named(const LevelsPlan& parts) {
  return {parts, levels_text(parts.plan), {stages_of(parts, false), stages_of(parts, true)}};
}

std::vector<levels::NamedLevelsPlan> named_plans(const LevelsParts& parts) {
  std::vector<levels::NamedLevelsPlan> plans;
  plans.push_back(named(parts.main));
  for (const LevelsPlan& other : parts.others) plans.push_back(named(other));
  return plans;
}

// Returns the fabrics that techniques see; none: only the whole one.
std::vector<Fabric*> level_fabrics_of(const LevelsParts& parts) {
  if (parts.peers) return {parts.main.stages.front().of_groups.front().get(), parts.peers.get()};
  return parts.main.plan.even() ? fabrics_of(parts.main) : std::vector<Fabric*>{};
}

std::vector<int> uneven_sizes(const LevelsParts& parts) {
  if (!parts.peers) return {};
  const levels::Parts& nodes = parts.tree.front();
  return {levels::places_of(nodes), static_cast<int>(nodes.size())};
}

// Returns the fabrics of all plans and those beside them, each once.
std::vector<Fabric*> all_fabrics(const LevelsParts& parts) {
  std::vector<Fabric*> all = fabrics_of(parts.main);
  all.push_back(parts.flat.get());
  if (parts.peers) all.push_back(parts.peers.get());
  for (const LevelsPlan& other : parts.others) {
    for (Fabric* const fabric : fabrics_of(other)) {
      if (std::ranges::find(all, fabric) == all.end()) all.push_back(fabric);
    }
  }
  return all;
}

std::optional<levels::Router> router_of(const LevelsParts& parts) {
  if (parts.tree.empty() || !parts.flat->capabilities().messages) return std::nullopt;
  return levels::Router(parts.tree, parts.flat->group().index);
}

// Returns whether the levels carry out a call.
bool goes_over_levels(const Call& call, const levels::LevelsResources& resources) {
  if (std::holds_alternative<AllgatherCall>(call) || std::holds_alternative<BroadcastCall>(call))
    return resources.router && options_of(call).absent.empty();
  if (std::holds_alternative<ReducescatterCall>(call) && !resources.router) return false;
  return levels::fits(call);
}

// A call that gains nothing from levels. It has its turn among the others: all members start the calls of
// the flat fabric in the same order.
class FlatRun {
 public:
  FlatRun(const levels::LevelsResources& resources, const Call& call)
      : pending_(resources.flat.start(call)) {}

  Result<bool> advance() { return pending_.ok() ? (*pending_)->test() : pending_.status(); }
  [[nodiscard]] int waiting_for() const { return pending_.ok() ? (*pending_)->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const { return pending_.ok() && (*pending_)->crowded(); }
  Nap idle(Backoff& backoff) { return pending_.ok() ? (*pending_)->idle(backoff) : Nap{}; }

 private:
  const Result<std::unique_ptr<PendingCall>> pending_;
};

// A call of any kind.
class AnyRun {
 public:
  AnyRun(const levels::LevelsResources& resources, const Call& call) : run_(made(resources, call)) {}

  Result<bool> advance() {
    return std::visit([](auto& run) { return run.advance(); }, run_);
  }
  // Implements CallQueue's interrupted(). Returns no error: the fabrics of the levels watch their own calls,
  // and one of them always has one.
  [[nodiscard]] static Status interrupted(const CallWatch& /*watch*/) { return {}; }
  [[nodiscard]] int waiting_for() const {
    return std::visit([](const auto& run) { return run.waiting_for(); }, run_);
  }
  [[nodiscard]] bool crowded() const {
    return std::visit([](const auto& run) { return run.crowded(); }, run_);
  }
  Nap idle(Backoff& backoff) {
    return std::visit([&](auto& run) { return run.idle(backoff); }, run_);
  }

 private:
  using Run = std::variant<levels::LevelsRun, levels::MoveRun, levels::SumRun, FlatRun>;

  static Run made(const levels::LevelsResources& resources, const Call& call) {
    if (!goes_over_levels(call, resources)) return Run(std::in_place_type<FlatRun>, resources, call);
    if (std::holds_alternative<AllreduceCall>(call))
      return Run(std::in_place_type<levels::LevelsRun>, resources, call);
    if (std::holds_alternative<ReducescatterCall>(call))
      return Run(std::in_place_type<levels::SumRun>, resources, call);
    return Run(std::in_place_type<levels::MoveRun>, resources, call);
  }

  Run run_;
};

// The state that the calls of one member share. One thread at a time.
struct LevelsState final : CallQueue<LevelsState>, Waker, DeviceCalls {
  using CallRun = AnyRun;

  explicit LevelsState(LevelsParts given)
      : parts(std::move(given)),
        whole(parts.flat->group()),
        resources{whole, named_plans(parts), *parts.flat, scratch, router_of(parts)} {
    // A device may have work that waits for peers which do not come any more.
    on_poison = [this] { give_up_parts(poison); };
  }

  [[nodiscard]] std::string_view algorithm_of(const Call& call) const {
    return goes_over_levels(call, resources) ? std::string_view(resources.plan_for(call).algorithm)
                                             : std::string_view{};
  }
  [[nodiscard]] const Group& group() const { return whole; }
  void wake() override {
    for (const Fabric* const fabric : all) {
      if (Waker* const waker = fabric->capabilities().waker; waker != nullptr) waker->wake();
    }
  }
  Status health() override {
    Status error = poison;
    for (const Fabric* const fabric : all) {
      DeviceCalls* const device = fabric->capabilities().device;
      if (error.ok() && device != nullptr) error = device->health();
    }
    if (!error.ok()) fail(error);
    return error;
  }
  void give_up(const Status& cause) override { fail(cause); }
  void give_up_parts(const Status& cause) const {
    for (const Fabric* const fabric : all) {
      if (DeviceCalls* const device = fabric->capabilities().device; device != nullptr)
        device->give_up(cause);
    }
  }

  const LevelsParts parts;
  const std::vector<Fabric*> levels = level_fabrics_of(parts);
  const std::vector<Fabric*> all = all_fabrics(parts);
  const Group whole;
  const std::string name = name_of(parts.main);
  ScratchPool scratch;
  const levels::LevelsResources resources;
};

class LevelsFabric final : public Fabric {
 public:
  explicit LevelsFabric(std::shared_ptr<LevelsState> state)
      : Fabric({.waker = state.get(),
                .device = state.get(),
                .plans = state->resources.plans.size(),
                .uneven = uneven_sizes(state->parts),
                .make_region = state->resources.node().capabilities().make_region,
                .counters = state->resources.node().capabilities().counters}),
        state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return state_->name; }
  [[nodiscard]] const Group& group() const override { return state_->whole; }
  [[nodiscard]] bool any_thread() const override {
    return std::ranges::all_of(state_->all, &Fabric::any_thread);
  }
  [[nodiscard]] bool poisoned() const override {
    return !state_->poison.ok() || std::ranges::any_of(state_->all, &Fabric::poisoned);
  }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override {
    return state_->levels.empty() ? flat() : std::span<Fabric* const>(state_->levels);
  }

  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->whole, capabilities()));
    return start_queued(state_, call);
  }

 private:
  const std::shared_ptr<LevelsState> state_;
};

}  // namespace

std::unique_ptr<Fabric> make_levels_fabric(LevelsParts parts) {
  return std::make_unique<LevelsFabric>(std::make_shared<LevelsState>(std::move(parts)));
}

}  // namespace roundelay::collective
