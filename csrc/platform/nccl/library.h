// NCCL, found at run time: the library that PyTorch has loaded, or the system's.
#pragma once

#include <memory>
#include <string>

#include "platform/nccl/api.h"

namespace roundelay::platform {

// `path`: of a libnccl.so.2; "": the one that this process has loaded already, else what the loader finds. It
// stays loaded. kUnavailable, with the cure, where there is none or it is too old.
[[nodiscard]] Result<std::unique_ptr<NcclApi>> open_nccl(const std::string& path);

}  // namespace roundelay::platform
