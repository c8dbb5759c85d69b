#include "collective/two_level/two_level_fabric.h"

#include <string>
#include <utility>

#include "collective/check.h"
#include "collective/queued_pending.h"
#include "collective/two_level/passage.h"
#include "collective/two_level/schedule.h"

namespace roundelay::collective {
namespace {

// What the calls of one member share. One thread at a time.
struct TwoLevelState : CallQueue<TwoLevelState> {
  using Passage = two_level::Passage;

  explicit TwoLevelState(Levels given)
      : levels(std::move(given)),
        whole(levels.flat->group()),
        name(std::string(levels.inner->name()) + "+" + std::string(levels.outer->name())),
        host{*levels.inner, *levels.outer, whole} {}

  [[nodiscard]] const Group& group() const { return whole; }

  Levels levels;
  const Group whole;
  const std::string name;
  const two_level::Host host;
};

// A call that the flat fabric carries out.
class FlatPending final : public Pending {
 public:
  FlatPending(std::shared_ptr<TwoLevelState> state, std::unique_ptr<Pending> flat)
      : state_(std::move(state)), flat_(std::move(flat)) {}

  Result<bool> test() override {
    if (!state_->poison.ok()) return state_->poison;
    Result<bool> done = flat_->test();
    if (!done.ok()) state_->fail(done.status());
    return done;
  }
  [[nodiscard]] int waiting_for() const override { return flat_->waiting_for(); }
  [[nodiscard]] bool crowded() const override { return flat_->crowded(); }
  Nap idle(Backoff& backoff) override { return flat_->idle(backoff); }

 private:
  const std::shared_ptr<TwoLevelState> state_;
  const std::unique_ptr<Pending> flat_;
};

class TwoLevelFabric final : public Fabric {
 public:
  explicit TwoLevelFabric(std::shared_ptr<TwoLevelState> state) : state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return state_->name; }
  [[nodiscard]] const Group& group() const override { return state_->whole; }
  [[nodiscard]] bool any_thread() const override {
    const Levels& levels = state_->levels;
    return levels.inner->any_thread() && levels.outer->any_thread() && levels.flat->any_thread();
  }
  [[nodiscard]] bool poisoned() const override {
    const Levels& levels = state_->levels;
    return !state_->poison.ok() || levels.inner->poisoned() || levels.outer->poisoned() ||
           levels.flat->poisoned();
  }
  void rouse() override {
    state_->levels.inner->rouse();
    state_->levels.outer->rouse();
    state_->levels.flat->rouse();
  }

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

std::unique_ptr<Fabric> make_two_level_fabric(Levels levels) {
  return std::make_unique<TwoLevelFabric>(std::make_shared<TwoLevelState>(std::move(levels)));
}

}  // namespace roundelay::collective
