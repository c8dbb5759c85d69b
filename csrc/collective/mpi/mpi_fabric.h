// The data plane over MPI: our algorithms over Isend, Irecv and Test on a communicator of its own.
// MPI cannot cancel what is under way: after a fault requests are abandoned, never waited for.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "collective/fabric.h"
#include "collective/select.h"
#include "platform/mpi/session.h"

namespace roundelay::collective {

struct MpiFabricOptions {
  Deadline deadline = Deadline::never();       // to make the communicator
  std::size_t most_message_bytes = 1U << 30U;  // longer ones are cut; tests use less
  Select select = select_algorithm;
  bool poisons_session = true;  // false: the caller shows that all requests end
};

// Collective over the group, in the same order on all members.
Result<std::unique_ptr<Fabric>> make_mpi_fabric(mpi::Session& session, const Group& group,
                                                const MpiFabricOptions& options);

}  // namespace roundelay::collective
