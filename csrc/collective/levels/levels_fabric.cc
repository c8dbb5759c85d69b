#include "collective/levels/levels_fabric.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "collective/check.h"
#include "collective/levels/levels_run.h"
#include "collective/levels/schedule.h"
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

// Returns the fabrics of all plans and the flat one, each once.
std::vector<Fabric*> all_fabrics(const LevelsParts& parts) {
  std::vector<Fabric*> all = fabrics_of(parts.main);
  all.push_back(parts.flat.get());
  for (const LevelsPlan& other : parts.others) {
    for (Fabric* const fabric : fabrics_of(other)) {
      if (std::ranges::find(all, fabric) == all.end()) all.push_back(fabric);
    }
  }
  return all;
}

// The state that the calls of one member share. One thread at a time.
struct LevelsState final : CallQueue<LevelsState>, Waker, DeviceCalls {
  using CallRun = levels::LevelsRun;

  explicit LevelsState(LevelsParts given)
      : parts(std::move(given)), whole(parts.flat->group()), resources{whole, named_plans(parts)} {
    // A device may have work that waits for peers which do not come any more.
    on_poison = [this] { give_up_parts(poison); };
  }

  [[nodiscard]] std::string_view algorithm_of(const Call& call) const {
    return resources.plan_for(call).algorithm;
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
  const std::vector<Fabric*> levels = fabrics_of(parts.main);
  const std::vector<Fabric*> all = all_fabrics(parts);
  const Group whole;
  const std::string name = name_of(parts.main);
  const levels::LevelsResources resources;
};

// A call that the flat fabric carries out.
class PendingFlatCall final : public PendingCall {
 public:
  PendingFlatCall(std::shared_ptr<LevelsState> state, std::unique_ptr<PendingCall> flat)
      : state_(std::move(state)), flat_(std::move(flat)) {}
  ~PendingFlatCall() override {
    if (!done_) state_->fail(Status::aborted("a call was dropped before its end"));
  }
  PendingFlatCall(const PendingFlatCall&) = delete;
  PendingFlatCall& operator=(const PendingFlatCall&) = delete;

  Result<bool> test() override {
    if (!state_->poison.ok()) return state_->poison;
    Result<bool> done = flat_->test();
    if (!done.ok()) state_->fail(done.status());
    done_ = done.ok() && *done;
    return done;
  }
  [[nodiscard]] int waiting_for() const override { return flat_->waiting_for(); }
  [[nodiscard]] std::string_view algorithm() const override { return flat_->algorithm(); }
  [[nodiscard]] bool crowded() const override { return flat_->crowded(); }
  Nap idle(Backoff& backoff) override { return flat_->idle(backoff); }

 private:
  const std::shared_ptr<LevelsState> state_;
  const std::unique_ptr<PendingCall> flat_;
  bool done_ = false;
};

class LevelsFabric final : public Fabric {
 public:
  explicit LevelsFabric(std::shared_ptr<LevelsState> state)
      : Fabric({.waker = state.get(),
                .device = state.get(),
                .plans = state->resources.plans.size(),
                .make_region = state->levels.front()->capabilities().make_region,
                .counters = state->levels.front()->capabilities().counters}),
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
    return state_->parts.main.plan.even() ? std::span<Fabric* const>(state_->levels) : flat();
  }

  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    if (!levels::fits(call)) return start_flat(call);
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->whole));
    return start_queued(state_, call);
  }

 private:
  Result<std::unique_ptr<PendingCall>> start_flat(const Call& call) {
    auto started = state_->parts.flat->start(call);
    if (!started.ok()) return started.status();
    return std::unique_ptr<PendingCall>(
        std::make_unique<PendingFlatCall>(state_, std::move(started).value()));
  }

  const std::shared_ptr<LevelsState> state_;
};

}  // namespace

std::unique_ptr<Fabric> make_levels_fabric(LevelsParts parts) {
  return std::make_unique<LevelsFabric>(std::make_shared<LevelsState>(std::move(parts)));
}

}  // namespace roundelay::collective
