// The data plane over MPI. It runs our algorithms over MPI_Isend, MPI_Irecv and MPI_Test on a communicator of
// its own. MPI cannot cancel transfers: after a fault their requests are left alone, and nobody waits for
// them.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "collective/engine/program_call.h"
#include "collective/fabric.h"
#include "collective/tuning/select.h"
#include "platform/mpi/session.h"

namespace roundelay::collective {

struct MpiFabricOptions {
  Deadline deadline = Deadline::never();       // ends the making of the communicator
  std::size_t most_message_bytes = 1U << 30U;  // longer messages are cut; tests use less
  Select select;
  // A fault calls Session::poison(). False: it does not, because the caller makes sure that all requests end.
  bool poisons_session = true;
};

// Makes the fabric. Collective over the group, in the same order on all members. `session` outlives it.
// Errors: as Session::communicator().
Result<std::unique_ptr<Fabric>> make_mpi_fabric(mpi::Session& session, const Group& group,
                                                const MpiFabricOptions& options);

// Makes what the calls of such a fabric share, for a fabric of another kind over MPI. The same rules.
Result<std::shared_ptr<FabricState>> make_mpi_state(mpi::Session& session, const Group& group,
                                                    const MpiFabricOptions& options);

}  // namespace roundelay::collective
