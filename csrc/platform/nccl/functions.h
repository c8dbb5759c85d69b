// Which of a library's functions are NCCL's, and whether they are all there.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "platform/nccl/abi.h"

namespace roundelay::platform::nccl {

// By name; null: the library has none.
using FindSymbol = std::function<void*(const char* name)>;

struct Found {
  Functions functions;
  int version = 0;
};

// `what`: the library, in messages. kUnavailable: no NCCL, or too old.
[[nodiscard]] Result<Found> find_functions(const FindSymbol& find, const std::string& what);

// "2.28.9"
[[nodiscard]] std::string version_text(int version);

}  // namespace roundelay::platform::nccl
