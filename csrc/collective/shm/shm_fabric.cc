#include "collective/shm/shm_fabric.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "collective/call_watch.h"
#include "collective/check.h"
#include "collective/present.h"
#include "collective/shm/announcements.h"
#include "collective/shm/programs.h"
#include "collective/shm/rounds.h"
#include "collective/single.h"

namespace roundelay::collective {
namespace {

using shm::History;
using shm::Rounds;

constexpr Duration kLongestSleep = std::chrono::milliseconds(100);

class ShmPending;

// What the calls of one member share. One thread at a time.
struct ShmState final : Waker {
  ShmState(std::shared_ptr<std::byte> shared, Group members, ShmFabricOptions given)
      : memory(std::move(shared)),
        group(std::move(members)),
        options(std::move(given)),
        history({memory.get(), group.size()}, group.index) {}

  void wake() override { history.segment.doorbell(group.index).ring(); }

  [[nodiscard]] FabricCapabilities capabilities() {
    return {.scattered = true,
            .waker = this,
            .make_region = options.make_region,
            .announcements = shm::make_announcements(memory, group.index, group.size()),
            .work = history.work};
  }

  const std::shared_ptr<std::byte> memory;
  const Group group;
  const ShmFabricOptions options;
  History history;
  ScratchPool scratch;
  std::deque<ShmPending*> queue;  // calls in progress; only the first one moves
  std::uint64_t calls = 0;
  bool moved = false;  // since the last idle()
  Status poison;       // the first cause; ok while the fabric works
};

// A call that has come to the head of the queue.
struct Running {
  Running(ShmState& state, const Call& started, std::uint64_t number)
      : call(among_present(started, state.group.size())),
        rounds(state.history, present_members(options_of(started), state.group.size()), number,
               state.scratch),
        program(shm::program_of(call, rounds)) {}

  const Call call;  // as the present members see it
  Rounds rounds;
  Program program;
};

class ShmPending final : public Pending {
 public:
  ShmPending(std::shared_ptr<ShmState> state, const Call& call, std::uint64_t number)
      : state_(std::move(state)), call_(call), watch_(call_, state_->group), number_(number) {
    state_->queue.push_back(this);
  }
  // A call that is dropped before its end poisons the fabric: its peers wait for this member's part.
  ~ShmPending() override {
    if (done_) return;
    std::erase(state_->queue, this);
    fail(watch_.dropped());
  }

  Result<bool> test() override {
    if (done_) return true;
    if (!state_->poison.ok()) return state_->poison;
    while (!done_ && state_->queue.front()->advance()) state_->queue.pop_front();
    if (done_) return true;
    Status why = state_->poison.ok() ? watch_.interrupted(waiting_for()) : state_->poison;
    if (why.ok()) return false;
    fail(why);
    return why;
  }

  [[nodiscard]] int waiting_for() const override {
    const ShmPending* const first = state_->queue.empty() ? nullptr : state_->queue.front();
    return first != nullptr && first->running_ ? first->running_->rounds.waiting_for() : -1;
  }
  [[nodiscard]] bool crowded() const override { return state_->options.crowded; }

  Nap idle(Backoff& backoff) override {
    if (std::exchange(state_->moved, false)) backoff.reset();
    const Nap nap = backoff.next();
    if (!nap.sleeps() || state_->queue.empty() || !state_->queue.front()->running_) return nap;
    return state_->queue.front()->running_->rounds.nap(std::min(kLongestSleep, time_left()));
  }

 private:
  // Of the first in the queue. True: it is over.
  bool advance() {
    if (!running_) running_.emplace(*state_, call_, number_);
    Program& program = running_->program;
    while (!program.done()) {
      if (!running_->rounds.all_done()) return false;
      program.resume();
      state_->moved = true;
    }
    if (program.threw()) {
      fail(watch_.explain("ran out of memory", waiting_for()));
      return false;
    }
    running_->rounds.finish();
    running_.reset();
    done_ = true;
    return true;
  }

  void fail(const Status& cause) const {
    if (state_->poison.ok()) state_->poison = cause;
  }

  [[nodiscard]] Duration time_left() const {
    const Deadline deadline = options_of(call_).deadline;
    if (deadline == Deadline::never()) return kLongestSleep;
    return std::max(Duration{0}, deadline.when() - steady_now());
  }

  const std::shared_ptr<ShmState> state_;
  const Call call_;
  CallWatch watch_;
  const std::uint64_t number_;
  std::optional<Running> running_;
  bool done_ = false;
};

class ShmFabric final : public Fabric {
 public:
  explicit ShmFabric(std::shared_ptr<ShmState> state)
      : Fabric(state->capabilities()), state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] const Group& group() const override { return state_->group; }
  [[nodiscard]] bool any_thread() const override { return true; }
  [[nodiscard]] bool poisoned() const override { return !state_->poison.ok(); }

  Result<std::unique_ptr<Pending>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->group, capabilities().scattered));
    const CallOptions& options = options_of(call);
    if (options.abort != nullptr && options.abort->raised()) return options.abort->cause();
    const std::uint64_t number = ++state_->calls;
    if (is_absent(options, state_->group.index)) return finished_call();
    auto pending = std::make_unique<ShmPending>(state_, call, number);
    // What can move moves now; what is wrong, the first test says.
    static_cast<void>(pending->test());
    return std::unique_ptr<Pending>(std::move(pending));
  }

 private:
  const std::shared_ptr<ShmState> state_;
};

}  // namespace

namespace shm {
namespace {

Program alone(const Call& call) {
  finish_single(call);
  co_return;
}

bool in_shared_region(const AllreduceCall& call) {
  return call.buffer.region != nullptr && !call.buffer.region->parts.empty();
}

// Picks the program of a call of each kind.
struct Picker {
  Rounds& net;

  Program operator()(const AllreduceCall& call) const {
    if (call.reduce_op == ReduceOp::kAdasum) return adasum(net, call);
    return in_shared_region(call) ? allreduce_in_region(net, call) : allreduce(net, call);
  }
  Program operator()(const BroadcastCall& call) const { return broadcast(net, call); }
  Program operator()(const BarrierCall& /*call*/) const { return barrier(net); }
  Program operator()(const AllgatherCall& call) const { return all_gather(net, call); }
  Program operator()(const AlltoallCall& call) const { return alltoall(net, call); }
  Program operator()(const ReducescatterCall& call) const { return reduce_scatter(net, call); }
};

}  // namespace

Program program_of(const Call& call, Rounds& net) {
  const bool nothing = operation_of(call) == Operation::kAllreduce && result_bytes(call) == 0;
  if (net.size() == 1 || nothing) return alone(call);
  return std::visit(Picker{net}, call);
}

}  // namespace shm

std::unique_ptr<Fabric> make_shm_fabric(std::shared_ptr<std::byte> memory, Group group,
                                        ShmFabricOptions options) {
  return std::make_unique<ShmFabric>(
      std::make_shared<ShmState>(std::move(memory), std::move(group), std::move(options)));
}

}  // namespace roundelay::collective
