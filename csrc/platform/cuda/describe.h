// What there is, in words.
#pragma once

#include <string>

#include "base/status.h"

namespace roundelay::platform::cuda {

[[nodiscard]] Result<std::string> describe();                     // "CUDA 13.0, driver 580.65.06"
[[nodiscard]] Result<std::string> describe_identity(int device);  // as nvidia-smi -L has it

}  // namespace roundelay::platform::cuda
