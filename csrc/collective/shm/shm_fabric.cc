#include "collective/shm/shm_fabric.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collective/call_watch.h"
#include "collective/check.h"
#include "collective/present.h"
#include "collective/queued_call.h"
#include "collective/shm/announcements.h"
#include "collective/shm/programs.h"
#include "collective/shm/rounds.h"
#include "collective/single.h"

namespace roundelay::collective {
namespace {

using shm::History;
using shm::Rounds;

constexpr Duration kLongestSleep = std::chrono::milliseconds(100);

// The objects that the calls of one member use.
struct ShmResources {
  ShmResources(std::shared_ptr<std::byte> shared, Group members, ShmFabricOptions given)
      : memory(std::move(shared)),
        group(std::move(members)),
        options(std::move(given)),
        history({memory.get(), group.size()}, group.index, options.heap.get()) {}

  const std::shared_ptr<std::byte> memory;
  const Group group;
  const ShmFabricOptions options;
  History history;
  ScratchPool scratch;
  std::uint64_t calls = 0;  // the number of calls begun, also of those that this member skips
};

// Drops the region of a call if it is another group's. The call's memory then is staged as any other.
void keep_own_region(Call& call, const Group& group) {
  const auto keep = [&group](const Region*& region) {
    if (region != nullptr && region->ranks != group.ranks) region = nullptr;
  };
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.buffer.region; }) {
          keep(one.buffer.region);
        } else if constexpr (requires { one.region; }) {
          keep(one.region);
        }
      },
      call);
}

// Returns the call as the members that take part see it.
Call seen_by_present(const Call& call, const Group& group) {
  Call seen = among_present(call, group.size());
  keep_own_region(seen, group);
  return seen;
}

// A program over the rounds of one call.
struct RunningProgram {
  RunningProgram(ShmResources& resources, const Call& started, std::uint64_t number)
      : call(seen_by_present(started, resources.group)),
        rounds(resources.history, present_members(options_of(started), resources.group.size()), number,
               resources.scratch, options_of(started).mark),
        program(shm::program_of(call, rounds)) {}

  const Call call;  // as the present members see it
  Rounds rounds;
  Program program;
};

// Carries out one call, which has come to the head of the queue. Calls are numbered in the order of the
// queue, which is the same on all members.
class ShmRun {
 public:
  ShmRun(ShmResources& resources, const Call& call) : resources_(resources), call_(call) {
    const std::uint64_t number = ++resources.calls;
    if (!is_absent(options_of(call), resources.group.index)) running_.emplace(resources, call, number);
  }

  Result<bool> advance() {
    if (!running_) return true;
    Program& program = running_->program;
    while (!program.done()) {
      if (!running_->rounds.all_done()) {
        if (const auto& in_vain = running_->rounds.in_vain()) return explain(*in_vain);
        return false;
      }
      program.resume();
      moved_ = true;
    }
    if (program.threw())
      return CallWatch(call_, resources_.group).explain("ran out of memory", waiting_for());
    running_->rounds.finish();
    return true;
  }
  Status interrupted(CallWatch& watch) const { return watch.interrupted(waiting_for()); }
  [[nodiscard]] int waiting_for() const { return running_ ? running_->rounds.waiting_for() : -1; }
  [[nodiscard]] bool crowded() const { return resources_.options.crowded; }

  Nap idle(Backoff& backoff) {
    if (std::exchange(moved_, false)) backoff.reset();
    const Nap nap = backoff.next();
    if (!nap.sleeps() || !running_) return nap;
    return running_->rounds.nap(std::min(kLongestSleep, time_left()));
  }

 private:
  [[nodiscard]] Status explain(const Rounds::InVain& in_vain) const {
    const int rank = resources_.group.ranks[static_cast<std::size_t>(in_vain.member)];
    if (!in_vain.calls.empty()) return differs_from(rank, in_vain.calls);
    return Status::aborted(std::string(name_of(operation_of(call_))) + " waits in vain: rank " +
                           std::to_string(rank) + " has left the group");
  }
  [[nodiscard]] Duration time_left() const {
    const Deadline deadline = options_of(call_).deadline;
    if (deadline == Deadline::never()) return kLongestSleep;
    return std::max(Duration{0}, deadline.when() - steady_now());
  }

  ShmResources& resources_;
  const Call& call_;
  std::optional<RunningProgram> running_;  // nothing: this member skips the call
  bool moved_ = false;                     // the program has gone on since the last idle()
};

// The state that the calls of one member share. One thread at a time.
struct ShmState final : CallQueue<ShmState>, Waker {
  using CallRun = ShmRun;

  ShmState(std::shared_ptr<std::byte> memory, Group members, ShmFabricOptions options)
      : resources(std::move(memory), std::move(members), std::move(options)) {}

  [[nodiscard]] const Group& group() const { return resources.group; }
  void wake() override { resources.history.segment.doorbell(group().index).ring(); }
  // Tells the peers that this member makes no more calls.
  void leave() {
    const shm::Segment& segment = resources.history.segment;
    segment.progress(group().index).left.store(1, std::memory_order_release);
    for (int member = 0; member < group().size(); ++member) segment.doorbell(member).ring();
  }

  [[nodiscard]] FabricCapabilities capabilities() {
    return {.scattered = true,
            .within_node = true,
            .waker = this,
            .make_region = resources.options.make_region,
            .announcements =
                std::make_shared<shm::SegmentAnnouncements>(resources.memory, group().index, group().size()),
            .counters = resources.history.counters};
  }

  ShmResources resources;
};

class ShmFabric final : public Fabric {
 public:
  explicit ShmFabric(std::shared_ptr<ShmState> state)
      : Fabric(state->capabilities()), state_(std::move(state)) {}
  ~ShmFabric() override {
    if (state_->poison.ok() && state_->calls.empty()) state_->leave();
  }

  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] const Group& group() const override { return state_->group(); }
  [[nodiscard]] bool any_thread() const override { return true; }
  [[nodiscard]] bool poisoned() const override { return !state_->poison.ok(); }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, group(), capabilities()));
    return start_queued(state_, call);
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

}  // namespace

Program program_of(const Call& call, Rounds& net) {
  const bool nothing = operation_of(call) == Operation::kAllreduce && result_bytes(call) == 0;
  if (net.size() == 1 || nothing) return alone(call);
  return std::visit([&net](const auto& one) { return run(net, one); }, call);
}

}  // namespace shm

std::unique_ptr<Fabric> make_shm_fabric(std::shared_ptr<std::byte> memory, Group group,
                                        ShmFabricOptions options) {
  return std::make_unique<ShmFabric>(
      std::make_shared<ShmState>(std::move(memory), std::move(group), std::move(options)));
}

}  // namespace roundelay::collective
