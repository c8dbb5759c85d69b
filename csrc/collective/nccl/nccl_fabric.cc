#include "collective/nccl/nccl_fabric.h"

#include <optional>
#include <utility>

#include "collective/check.h"
#include "collective/nccl/nccl_operation.h"
#include "collective/queued_call.h"
#include "collective/single/gpu_single.h"

namespace roundelay::collective {
namespace {

// The objects that the calls of one member use.
struct NcclResources {
  const nccl::Tools tools;
  Fabric& staged;
};

// Carries out one call. NCCL gets it when the call before it is enqueued: a staged call before it would
// otherwise wait in the stream for peers that have not started theirs.
class NcclRun {
 public:
  NcclRun(const NcclResources& resources, const Call& call) : resources_(resources), call_(call) {}

  Result<bool> advance() {
    if (!begun_) {
      begun_ = true;
      ROUNDELAY_RETURN_IF_ERROR(begin());
    }
    if (staged_) return staged_->test();
    Result<bool> enqueued = resources_.tools.communicator.ready();
    if (!enqueued.ok() || !*enqueued) return enqueued;
    ROUNDELAY_RETURN_IF_ERROR(operation_->end());
    return true;
  }
  Status interrupted(CallWatch& watch) const { return staged_ ? Status() : watch.interrupted(-1); }
  [[nodiscard]] int waiting_for() const { return staged_ ? staged_->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const { return staged_ && staged_->crowded(); }
  Nap idle(Backoff& backoff) { return staged_ ? staged_->idle(backoff) : backoff.next(); }

 private:
  Status begin() {
    if (nccl::fits(call_, resources_.tools.group.size()))
      return operation_.emplace(resources_.tools, call_).begin();
    auto started = resources_.staged.start(call_);
    if (!started.ok()) return started.status();
    staged_ = std::move(started).value();
    return {};
  }

  const NcclResources& resources_;
  const Call& call_;
  bool begun_ = false;
  std::optional<nccl::NcclOperation> operation_;
  std::unique_ptr<PendingCall> staged_;
};

// The state that the calls of one member share. One thread at a time.
struct NcclState final : CallQueue<NcclState>, DeviceCalls {
  using CallRun = NcclRun;

  explicit NcclState(NcclFabricParts given)
      : members(std::move(given.group)),
        communicator(std::move(given.communicator)),
        scratch(given.runtime, given.device),
        resources{{members, *communicator, given.runtime, given.kernels, given.device, scratch},
                  given.staged} {
    on_poison = [this] { communicator->abort(); };
  }

  [[nodiscard]] const Group& group() const { return members; }

  Status health() override {
    if (!poison.ok()) return poison;
    Status error = communicator->ready().status();
    if (error.ok() && staged_calls() != nullptr) error = staged_calls()->health();
    if (!error.ok()) fail(error);
    return error;
  }
  void give_up(const Status& cause) override {
    fail(cause);
    if (staged_calls() != nullptr) staged_calls()->give_up(cause);
  }
  [[nodiscard]] DeviceCalls* staged_calls() const { return resources.staged.capabilities().device; }

  const Group members;
  const std::unique_ptr<platform::NcclCommunicator> communicator;
  nccl::DeviceScratch scratch;
  const NcclResources resources;
};

class NcclFabric final : public Fabric {
 public:
  explicit NcclFabric(std::shared_ptr<NcclState> state)
      : Fabric({.within_node = state->resources.staged.capabilities().within_node,
                .waker = state->resources.staged.capabilities().waker,
                .device = state.get(),
                .make_region = no_gpu_region}),
        state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] const Group& group() const override { return state_->members; }
  [[nodiscard]] bool any_thread() const override { return state_->resources.staged.any_thread(); }
  [[nodiscard]] bool poisoned() const override {
    return !state_->poison.ok() || state_->resources.staged.poisoned();
  }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->members, capabilities()));
    return start_queued(state_, call);
  }

 private:
  const std::shared_ptr<NcclState> state_;
};

}  // namespace

std::unique_ptr<Fabric> make_nccl_fabric(NcclFabricParts parts) {
  return std::make_unique<NcclFabric>(std::make_shared<NcclState>(std::move(parts)));
}

}  // namespace roundelay::collective
