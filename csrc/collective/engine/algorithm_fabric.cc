#include "collective/engine/algorithm_fabric.h"

#include <utility>

#include "collective/check.h"
#include "collective/present.h"

namespace roundelay::collective {
namespace {

// Calls in progress at once need different tags; MPI guarantees tags up to 32767.
constexpr int kCallTags = 1 << 14;  // each call has two

}  // namespace

AlgorithmFabric::AlgorithmFabric(std::shared_ptr<FabricState> state, Options options)
    : Fabric({.messages = true, .waker = options.waker}),
      state_(std::move(state)),
      options_(std::move(options)) {}

Result<std::unique_ptr<PendingCall>> AlgorithmFabric::start(const Call& call) {
  if (!state_->poison.ok()) return state_->poison;
  ROUNDELAY_RETURN_IF_ERROR(check_call(call, state_->group, capabilities()));
  const CallOptions& options = options_of(call);
  if (options.abort != nullptr && options.abort->raised()) return options.abort->cause();
  if (state_->usable) ROUNDELAY_RETURN_IF_ERROR(state_->usable());
  const int tag = 2 * (calls_ % kCallTags);
  calls_ = (calls_ + 1) % kCallTags;
  if (is_absent(options, state_->group.index)) return finished_call();
  return std::unique_ptr<PendingCall>(std::make_unique<ProgramCall>(state_, call, options_.select, tag));
}

}  // namespace roundelay::collective
