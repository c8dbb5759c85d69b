// A communicator of the real NCCL. It is non-blocking: if a call cannot enqueue its operation at once, a
// thread of NCCL continues it, and ready() tells when that is done.
#pragma once

#include <memory>

#include "platform/nccl/abi.h"
#include "platform/nccl/api.h"

namespace roundelay::platform::nccl {

// Returns an error with NCCL's name of `result` and NCCL's last message.
[[nodiscard]] Status error_of(const Functions& functions, const char* call, Code result, Comm comm);

// Takes ownership of `comm`, which NCCL may still be making. `functions` must outlive the result.
[[nodiscard]] std::unique_ptr<NcclCommunicator> make_communicator(const Functions& functions, Comm comm);

}  // namespace roundelay::platform::nccl
