// Names of CUDA's version and of devices.
#pragma once

#include <string>

#include "base/status.h"

namespace roundelay::platform::cuda {

// Returns the versions: "CUDA 13.0, driver 580.65.06".
[[nodiscard]] Result<std::string> describe();
// Returns the UUID of a GPU, "GPU-...", or of a part of one (MIG), "MIG-...".
[[nodiscard]] Result<std::string> describe_identity(int device);

}  // namespace roundelay::platform::cuda
