// A communicator of the real NCCL. Non-blocking: a call that cannot be enqueued at once goes on in a thread
// of NCCL's, and ready() asks whether it has.
#pragma once

#include <memory>

#include "platform/nccl/abi.h"
#include "platform/nccl/api.h"

namespace roundelay::platform::nccl {

// In NCCL's words: what it calls the result, and what it said last.
[[nodiscard]] Status error_of(const Functions& functions, const char* call, Code result, Comm comm);

// Owns `comm`, which is being made. `functions` outlives it.
[[nodiscard]] std::unique_ptr<NcclCommunicator> make_communicator(const Functions& functions, Comm comm);

}  // namespace roundelay::platform::nccl
