#include "collective/staged/staged_fabric.h"

#include <string>
#include <utility>

#include "collective/check.h"
#include "collective/present.h"
#include "collective/queued_call.h"
#include "collective/single/gpu_single.h"
#include "collective/staged/staged_run.h"

namespace roundelay::collective {
namespace {

// The state that the calls of one member share. One thread at a time.
struct StagedState final : CallQueue<StagedState>, DeviceCalls {
  using CallRun = staged::StagedRun;

  StagedState(Fabric& cpu, GpuRuntime& runtime, int device, std::size_t piece_bytes)
      : resources{cpu, runtime, device, piece_bytes}, name("staged " + std::string(cpu.name())) {}

  [[nodiscard]] const Group& group() const { return resources.cpu.group(); }
  // Only copies up may still be on their way, and the event that marks their end tells of a failure.
  Status health() override { return {}; }
  void give_up(const Status& cause) override { fail(cause); }

  staged::StagedResources resources;
  const std::string name;
};

class StagedFabric final : public Fabric {
 public:
  explicit StagedFabric(std::shared_ptr<StagedState> state)
      : Fabric({.within_node = state->resources.cpu.capabilities().within_node,
                .waker = state->resources.cpu.capabilities().waker,
                .device = state.get(),
                .make_region = no_gpu_region}),
        state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return state_->name; }
  [[nodiscard]] const Group& group() const override { return state_->group(); }
  [[nodiscard]] bool any_thread() const override { return state_->resources.cpu.any_thread(); }
  [[nodiscard]] bool poisoned() const override {
    return !state_->poison.ok() || state_->resources.cpu.poisoned();
  }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, group(), capabilities()));
    if (options_of(call).stream == nullptr && !is_absent(options_of(call), group().index)) {
      return Status::invalid(std::string(name_of(operation_of(call))) + ": the memory is not a GPU's");
    }
    return start_queued(state_, call);
  }

 private:
  const std::shared_ptr<StagedState> state_;
};

}  // namespace

std::unique_ptr<Fabric> make_staged_fabric(Fabric& cpu, GpuRuntime& runtime, int device,
                                           std::size_t piece_bytes) {
  const std::size_t whole = (piece_bytes + staged::kElement - 1) / staged::kElement * staged::kElement;
  return std::make_unique<StagedFabric>(std::make_shared<StagedState>(cpu, runtime, device, whole));
}

}  // namespace roundelay::collective
