// Looks up NCCL's functions in a library and checks that all are there.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "platform/nccl/abi.h"

namespace roundelay::platform::nccl {

// Returns the address of a symbol; null if the library does not have it.
using FindSymbol = std::function<void*(const char* name)>;

// The functions of one library, and its version code.
struct Found {
  Functions functions;
  int version = 0;
};

// Looks up all functions with `find`. `what` names the library in messages. Errors: kUnavailable (not NCCL,
// or too old).
[[nodiscard]] Result<Found> find_functions(const FindSymbol& find, const std::string& what);

// Returns "2.28.9".
[[nodiscard]] std::string version_text(int version);

}  // namespace roundelay::platform::nccl
