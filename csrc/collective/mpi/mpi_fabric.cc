#include "collective/mpi/mpi_fabric.h"

#include <utility>

#include "collective/engine/algorithm_fabric.h"
#include "collective/mpi/mpi_transport.h"

namespace roundelay::collective {
namespace {

// No MPI sends fewer bytes by rendezvous, so that a message of fewer bytes needs nothing more from its
// sender.
constexpr std::size_t kEagerBytes = 2 << 10;

}  // namespace

Result<std::shared_ptr<FabricState>> make_mpi_state(mpi::Session& session, const Group& group,
                                                    const MpiFabricOptions& options) {
  Result<MPI_Comm> communicator = session.communicator(group, options.deadline);
  if (!communicator.ok()) return communicator.status();
  auto state = std::make_shared<FabricState>();
  state->group = group;
  state->transport = std::make_unique<MpiTransport>(session, *communicator, options.most_message_bytes);
  state->crowded = session.crowded();
  state->most_open_bytes = kEagerBytes;
  if (options.poisons_session) {
    state->on_poison = [&session](const Status& cause) { session.poison(cause.message()); };
  }
  state->usable = [&session] { return session.usable(); };
  return state;
}

Result<std::unique_ptr<Fabric>> make_mpi_fabric(mpi::Session& session, const Group& group,
                                                const MpiFabricOptions& options) {
  auto state = make_mpi_state(session, group, options);
  if (!state.ok()) return state.status();
  AlgorithmFabric::Options fabric;
  fabric.name = "mpi";
  fabric.any_thread = session.any_thread();
  fabric.select = options.select;
  return std::unique_ptr<Fabric>(std::make_unique<AlgorithmFabric>(std::move(state).value(), fabric));
}

}  // namespace roundelay::collective
