#include "collective/two_level/two_level_fabric.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "collective/call_watch.h"
#include "collective/check.h"
#include "collective/two_level/passage.h"
#include "collective/two_level/schedule.h"

namespace roundelay::collective {
namespace {

class TwoLevelPending;

// What the calls of one member share. One thread at a time.
struct TwoLevelState {
  explicit TwoLevelState(Levels given)
      : levels(std::move(given)),
        group(levels.flat->group()),
        name(std::string(levels.inner->name()) + "+" + std::string(levels.outer->name())) {}

  Levels levels;
  const Group group;
  const std::string name;
  std::deque<TwoLevelPending*> queue;  // calls in progress; only the first one moves
  Status poison;                       // the first cause; ok while the fabric works

  void fail(const Status& cause) {
    if (poison.ok()) poison = cause;
  }
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

class TwoLevelPending final : public Pending {
 public:
  TwoLevelPending(std::shared_ptr<TwoLevelState> state, const Call& call)
      : state_(std::move(state)), call_(call), watch_(call_, state_->group) {
    state_->queue.push_back(this);
  }
  // A call that is dropped before its end poisons the fabric: its peers wait for this member's part.
  ~TwoLevelPending() override {
    if (done_) return;
    std::erase(state_->queue, this);
    state_->fail(watch_.dropped());
  }

  Result<bool> test() override {
    while (!done_) {
      if (!state_->poison.ok()) return state_->poison;
      TwoLevelPending& first = *state_->queue.front();
      if (const Result<bool> over = first.advance(); !over.ok()) {
        state_->fail(over.status());
      } else if (!*over) {
        return false;
      } else {
        state_->queue.pop_front();
      }
    }
    return true;
  }

  [[nodiscard]] int waiting_for() const override { return moving() ? moving()->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const override { return moving() && moving()->crowded(); }
  Nap idle(Backoff& backoff) override {
    if (!moving()) return backoff.next();
    if (moving()->moved()) backoff.reset();
    return moving()->idle(backoff);
  }

 private:
  // Of the first in the queue. True: it is over.
  Result<bool> advance() {
    if (!passage_) {
      passage_.emplace(*state_->levels.inner, *state_->levels.outer, state_->group, call_);
    }
    Result<bool> over = passage_->advance();
    done_ = over.ok() && *over;
    if (done_) passage_.reset();
    return over;
  }

  [[nodiscard]] two_level::Passage* moving() const {
    if (state_->queue.empty() || !state_->queue.front()->passage_) return nullptr;
    return &*state_->queue.front()->passage_;
  }

  const std::shared_ptr<TwoLevelState> state_;
  const Call call_;
  const CallWatch watch_;
  mutable std::optional<two_level::Passage> passage_;
  bool done_ = false;
};

class TwoLevelFabric final : public Fabric {
 public:
  explicit TwoLevelFabric(std::shared_ptr<TwoLevelState> state) : state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return state_->name; }
  [[nodiscard]] const Group& group() const override { return state_->group; }
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
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->group));
    if (call.abort != nullptr && call.abort->raised()) return call.abort->cause();
    auto pending = std::make_unique<TwoLevelPending>(state_, call);
    // What can move moves now; what is wrong, the first test says.
    static_cast<void>(pending->test());
    return std::unique_ptr<Pending>(std::move(pending));
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
