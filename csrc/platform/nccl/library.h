// Opens NCCL at run time: the library that PyTorch has loaded, or the system's.
#pragma once

#include <memory>
#include <string>

#include "platform/nccl/api.h"

namespace roundelay::platform {

// Opens the library at `path`. "" means the one that this process has loaded already, otherwise the one that
// the loader finds. The library stays loaded. Errors: kUnavailable with the cure (no library, or too old).
[[nodiscard]] Result<std::unique_ptr<NcclApi>> open_nccl(const std::string& path);

}  // namespace roundelay::platform
