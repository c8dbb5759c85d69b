// A queue of calls, which a member carries out one after the other. A test of any of them moves the first
// one.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collective/call_watch.h"
#include "collective/fabric.h"

namespace roundelay::collective {

template <class State>
class QueuedCall;

// The state that the calls of one member share. One thread at a time. `State` derives from it. It has
// group(), `resources` of any type, and a type CallRun, whose objects carry out one call each when its turn
// has come:
// - CallRun(resources, call): both outlive it; the call has been checked.
// - Result<bool> advance(): moves the call on without blocking. True: it is over.
// - Status interrupted(CallWatch&): returns an error if the call must end now; called if nothing has moved.
// - waiting_for(), crowded() and idle(): as PendingCall's.
template <class State>
struct CallQueue {
  std::deque<QueuedCall<State>*> calls;  // the calls in progress; only the first one moves
  Status poison;                         // the first cause; ok while the fabric works
  std::function<void()> on_poison;       // called once; may be empty

  // Returns a call's PendingCall::algorithm(). A State with several ways has a function of this name, too.
  [[nodiscard]] static std::string_view algorithm_of(const Call& /*call*/) { return {}; }
  // Poisons the fabric, unless it is poisoned already.
  void fail(const Status& cause) {
    if (!poison.ok()) return;
    poison = cause;
    if (on_poison) on_poison();
  }
};

template <class State>
class QueuedCall final : public PendingCall {
 public:
  QueuedCall(std::shared_ptr<State> state, const Call& call)
      : state_(std::move(state)), call_(call), watch_(call_, state_->group()) {
    state_->calls.push_back(this);
  }
  // A call that is dropped before its end poisons the fabric, because its peers wait for this member's part.
  // Its call is destroyed after that.
  ~QueuedCall() override {
    if (done_) return;
    std::erase(state_->calls, this);
    state_->fail(watch_.dropped());
  }
  QueuedCall(const QueuedCall&) = delete;
  QueuedCall& operator=(const QueuedCall&) = delete;

  Result<bool> test() override {
    while (!done_) {
      if (!state_->poison.ok()) return state_->poison;
      QueuedCall& first = *state_->calls.front();
      const Result<bool> over = first.advance();
      if (!over.ok()) {
        state_->fail(over.status());
      } else if (*over) {
        state_->calls.pop_front();
      } else if (Status why = first.run_->interrupted(first.watch_); !why.ok()) {
        state_->fail(why);
      } else {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] int waiting_for() const override { return moving() ? moving()->waiting_for() : -1; }
  [[nodiscard]] std::string_view algorithm() const override { return state_->algorithm_of(call_); }
  [[nodiscard]] bool crowded() const override { return moving() && moving()->crowded(); }
  Nap idle(Backoff& backoff) override { return moving() ? moving()->idle(backoff) : backoff.next(); }

 private:
  using CallRun = typename State::CallRun;

  // Moves this call, which is the first one.
  Result<bool> advance() {
    if (!run_) run_.emplace(state_->resources, call_);
    Result<bool> over = run_->advance();
    done_ = over.ok() && *over;
    if (done_) run_.reset();
    return over;
  }

  // Returns the object that carries out the first call. Null before its turn.
  [[nodiscard]] CallRun* moving() const {
    if (state_->calls.empty() || !state_->calls.front()->run_) return nullptr;
    return &*state_->calls.front()->run_;
  }

  const std::shared_ptr<State> state_;
  const Call call_;
  CallWatch watch_;
  mutable std::optional<CallRun> run_;
  bool done_ = false;
};

// Starts a call that has been checked. Returns the cause if the call's abort token is raised.
template <class State>
Result<std::unique_ptr<PendingCall>> start_queued(const std::shared_ptr<State>& state, const Call& call) {
  const AbortToken* const abort = options_of(call).abort;
  if (abort != nullptr && abort->raised()) return abort->cause();
  auto pending = std::make_unique<QueuedCall<State>>(state, call);
  // Moves the call as far as possible now. The caller's first test returns an error.
  static_cast<void>(pending->test());
  return std::unique_ptr<PendingCall>(std::move(pending));
}

}  // namespace roundelay::collective
