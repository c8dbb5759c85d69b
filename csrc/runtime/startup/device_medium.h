// Makes the media for memory on GPUs.
#pragma once

#include <memory>

#include "base/config.h"
#include "base/group.h"
#include "collective/device/device_fabric.h"
#include "runtime/backend.h"
#include "runtime/startup/algorithm_choice.h"

namespace roundelay::runtime {

// Makes the group's medium if ROUNDELAY_GPU_FABRIC asks for MPI; null if not, or if the group has one member.
// All members call it after they made the group's fabrics. Errors: those of Backend::fabric().
Result<std::shared_ptr<collective::DeviceMedium>> make_device_medium(Backend* backend, const Config& config,
                                                                     const AlgorithmChoice& algorithms,
                                                                     const Group& group);

}  // namespace roundelay::runtime
