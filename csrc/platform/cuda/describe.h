// Names of CUDA's version and of devices.
#pragma once

#include <string>

#include "base/status.h"

namespace roundelay::platform::cuda {

[[nodiscard]] Result<std::string> describe();  // returns "CUDA 13.0, driver 580.65.06"
[[nodiscard]] Result<std::string> describe_identity(
    int device);  // returns a GPU's or MIG part's UUID: "GPU-..."

}  // namespace roundelay::platform::cuda
