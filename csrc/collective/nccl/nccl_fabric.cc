#include "collective/nccl/nccl_fabric.h"

#include <deque>
#include <optional>
#include <utility>

#include "collective/call_watch.h"
#include "collective/check.h"
#include "collective/nccl/turn.h"

namespace roundelay::collective {
namespace {

class NcclPending;

// What the calls of one member share. One thread at a time.
struct NcclState {
  explicit NcclState(NcclFabricParts given)
      : group(std::move(given.group)),
        communicator(std::move(given.communicator)),
        staged(given.staged),
        scratch(given.runtime, given.device),
        tools{group, *communicator, given.runtime, given.kernels, given.device, scratch} {}

  const Group group;
  const std::unique_ptr<platform::NcclCommunicator> communicator;
  Fabric& staged;
  nccl::DeviceScratch scratch;
  const nccl::Tools tools;
  // Calls in progress. Only the first one moves: NCCL takes a call when the one before is enqueued, and a
  // staged call would wait in the stream for what peers have not started yet.
  std::deque<NcclPending*> queue;
  Status poison;  // the first cause; ok while the fabric works

  void fail(const Status& cause) {
    if (!poison.ok()) return;
    poison = cause;
    communicator->abort();
  }
};

class NcclPending final : public Pending {
 public:
  NcclPending(std::shared_ptr<NcclState> state, const Call& call)
      : state_(std::move(state)), call_(call), watch_(call_, state_->group) {
    state_->queue.push_back(this);
  }
  // A call that is dropped before its end poisons the fabric: its peers wait for this member's part.
  ~NcclPending() override {
    if (done_) return;
    std::erase(state_->queue, this);
    state_->fail(watch_.dropped());
  }

  Result<bool> test() override {
    while (!done_) {
      if (!state_->poison.ok()) return state_->poison;
      NcclPending& first = *state_->queue.front();
      if (const Result<bool> over = first.advance(); !over.ok()) {
        state_->fail(over.status());
      } else if (!*over) {
        return false;
      } else {
        first.done_ = true;
        state_->queue.pop_front();
      }
    }
    return true;
  }

  [[nodiscard]] int waiting_for() const override { return moving() ? moving()->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const override { return moving() && moving()->crowded(); }
  Nap idle(Backoff& backoff) override { return moving() ? moving()->idle(backoff) : backoff.next(); }

 private:
  // Of the first in the queue. True: it is over.
  Result<bool> advance() {
    if (!begun_) {
      begun_ = true;
      ROUNDELAY_RETURN_IF_ERROR(begin());
    }
    if (staged_) return staged_->test();
    const Result<bool> enqueued = state_->communicator->settled();
    if (!enqueued.ok()) return enqueued.status();
    if (!*enqueued) {
      ROUNDELAY_RETURN_IF_ERROR(watch_.interrupted(-1));
      return false;
    }
    ROUNDELAY_RETURN_IF_ERROR(turn_->end());
    return true;
  }

  Status begin() {
    if (nccl::fits(call_, state_->group.size())) return turn_.emplace(state_->tools, call_).begin();
    auto started = state_->staged.start(call_);
    if (!started.ok()) return started.status();
    staged_ = std::move(started).value();
    return {};
  }

  [[nodiscard]] Pending* moving() const {
    return state_->queue.empty() ? nullptr : state_->queue.front()->staged_.get();
  }

  const std::shared_ptr<NcclState> state_;
  const Call call_;
  CallWatch watch_;
  bool begun_ = false, done_ = false;
  std::optional<nccl::Turn> turn_;
  std::unique_ptr<Pending> staged_;
};

class NcclFabric final : public Fabric {
 public:
  explicit NcclFabric(std::shared_ptr<NcclState> state) : state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] const Group& group() const override { return state_->group; }
  [[nodiscard]] bool any_thread() const override { return state_->staged.any_thread(); }
  [[nodiscard]] bool poisoned() const override { return !state_->poison.ok() || state_->staged.poisoned(); }
  void rouse() override { state_->staged.rouse(); }
  [[nodiscard]] RegionMaker region_maker() const override { return state_->staged.region_maker(); }

  Result<std::unique_ptr<Pending>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->group));
    if (call.abort != nullptr && call.abort->raised()) return call.abort->cause();
    auto pending = std::make_unique<NcclPending>(state_, call);
    // What can move moves now; what is wrong, the first test says.
    static_cast<void>(pending->test());
    return std::unique_ptr<Pending>(std::move(pending));
  }

  Status health() override {
    if (!state_->poison.ok()) return state_->poison;
    Status error = state_->communicator->settled().status();
    if (error.ok()) error = state_->staged.health();
    if (!error.ok()) state_->fail(error);
    return error;
  }
  void give_up(const Status& cause) override {
    state_->fail(cause);
    state_->staged.give_up(cause);
  }

 private:
  const std::shared_ptr<NcclState> state_;
};

}  // namespace

std::unique_ptr<Fabric> make_nccl_fabric(NcclFabricParts parts) {
  return std::make_unique<NcclFabric>(std::make_shared<NcclState>(std::move(parts)));
}

}  // namespace roundelay::collective
