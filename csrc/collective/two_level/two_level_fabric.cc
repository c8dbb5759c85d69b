#include "collective/two_level/two_level_fabric.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "collective/check.h"
#include "collective/queued_pending.h"
#include "collective/two_level/schedule.h"
#include "collective/two_level/two_level_run.h"

namespace roundelay::collective {
namespace {

// Returns the levels of both, innermost first.
std::vector<Fabric*> levels_of(Fabric& inner, Fabric& outer) {
  std::vector<Fabric*> levels(inner.levels().begin(), inner.levels().end());
  levels.insert(levels.end(), outer.levels().begin(), outer.levels().end());
  return levels;
}

// The state that the calls of one member share. One thread at a time.
struct TwoLevelState final : CallQueue<TwoLevelState>, Waker, DeviceCalls {
  using CallRun = two_level::TwoLevelRun;

  TwoLevelState(Levels given, LevelsCut cut)
      : levels(std::move(given)),
        whole(levels.flat->group()),
        name(std::string(levels.inner->name()) + "+" + std::string(levels.outer->name())),
        resources{*levels.inner, *levels.outer, whole, cut} {
    // A device may have work that waits for peers which do not come any more.
    on_poison = [this] { give_up_parts(poison); };
  }

  [[nodiscard]] const Group& group() const { return whole; }
  [[nodiscard]] std::array<Fabric*, 3> all() const {
    return {levels.inner.get(), levels.outer.get(), levels.flat.get()};
  }
  void wake() override {
    for (const Fabric* const fabric : all()) {
      if (Waker* const waker = fabric->capabilities().waker; waker != nullptr) waker->wake();
    }
  }
  Status health() override {
    Status error = poison;
    for (const Fabric* const fabric : all()) {
      DeviceCalls* const device = fabric->capabilities().device;
      if (error.ok() && device != nullptr) error = device->health();
    }
    if (!error.ok()) fail(error);
    return error;
  }
  void give_up(const Status& cause) override { fail(cause); }
  void give_up_parts(const Status& cause) const {
    for (const Fabric* const fabric : all()) {
      if (DeviceCalls* const device = fabric->capabilities().device; device != nullptr)
        device->give_up(cause);
    }
  }

  Levels levels;
  const std::vector<Fabric*> each_level = levels_of(*levels.inner, *levels.outer);
  const Group whole;
  const std::string name;
  const two_level::TwoLevelResources resources;
};

// A call that the flat fabric carries out.
class FlatPending final : public Pending {
 public:
  FlatPending(std::shared_ptr<TwoLevelState> state, std::unique_ptr<Pending> flat)
      : state_(std::move(state)), flat_(std::move(flat)) {}
  ~FlatPending() override {
    if (!done_) state_->fail(Status::aborted("a call was dropped before its end"));
  }
  FlatPending(const FlatPending&) = delete;
  FlatPending& operator=(const FlatPending&) = delete;

  Result<bool> test() override {
    if (!state_->poison.ok()) return state_->poison;
    Result<bool> done = flat_->test();
    if (!done.ok()) state_->fail(done.status());
    done_ = done.ok() && *done;
    return done;
  }
  [[nodiscard]] int waiting_for() const override { return flat_->waiting_for(); }
  [[nodiscard]] bool crowded() const override { return flat_->crowded(); }
  Nap idle(Backoff& backoff) override { return flat_->idle(backoff); }

 private:
  const std::shared_ptr<TwoLevelState> state_;
  const std::unique_ptr<Pending> flat_;
  bool done_ = false;
};

class TwoLevelFabric final : public Fabric {
 public:
  explicit TwoLevelFabric(std::shared_ptr<TwoLevelState> state)
      : Fabric({.waker = state.get(),
                .device = state.get(),
                .make_region = state->levels.inner->capabilities().make_region,
                .counters = state->levels.inner->capabilities().counters}),
        state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return state_->name; }
  [[nodiscard]] const Group& group() const override { return state_->whole; }
  [[nodiscard]] bool any_thread() const override {
    return std::ranges::all_of(state_->all(), &Fabric::any_thread);
  }
  [[nodiscard]] bool poisoned() const override {
    return !state_->poison.ok() || std::ranges::any_of(state_->all(), &Fabric::poisoned);
  }
  [[nodiscard]] std::span<Fabric* const> levels() override { return state_->each_level; }

  Result<std::unique_ptr<Pending>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    if (!two_level::fits(call)) return start_flat(call);
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->whole));
    return start_queued(state_, call);
  }

 private:
  Result<std::unique_ptr<Pending>> start_flat(const Call& call) {
    auto started = state_->levels.flat->start(call);
    if (!started.ok()) return started.status();
    return std::unique_ptr<Pending>(std::make_unique<FlatPending>(state_, std::move(started).value()));
  }

  const std::shared_ptr<TwoLevelState> state_;
};

}  // namespace

std::unique_ptr<Fabric> make_two_level_fabric(Levels levels, LevelsCut cut) {
  return std::make_unique<TwoLevelFabric>(std::make_shared<TwoLevelState>(std::move(levels), cut));
}

}  // namespace roundelay::collective
