// The data plane over a torch.distributed process group. It runs our algorithms over the group's send and
// receive, so that it has all types and operations, whatever the group's own collectives can do.
#pragma once

#include <cstddef>
#include <memory>

#include "collective/fabric.h"
#include "collective/tuning/select.h"
#include "platform/c10d/process_group.h"

namespace roundelay::collective {

struct C10dFabricOptions {
  std::size_t most_message_bytes = 1U << 30U;  // longer messages are cut; tests use less
  Select select;
};

// `process_group` has the members of `group`, with the same indices.
std::unique_ptr<Fabric> make_c10d_fabric(std::unique_ptr<platform::ProcessGroup> process_group,
                                         const Group& group, const C10dFabricOptions& options);

}  // namespace roundelay::collective
