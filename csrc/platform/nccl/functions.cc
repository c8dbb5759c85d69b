#include "platform/nccl/functions.h"

namespace roundelay::platform::nccl {
namespace {

template <typename Function>
bool resolve(const FindSymbol& find, const char* name, Function& function) {
  function = reinterpret_cast<Function>(find(name));
  return function != nullptr;
}

}  // namespace

std::string version_text(int version) {
  const bool old = version < version_code(1, 0, 0);  // up to version 2.8, whose code is 2804
  const int major = old ? version / 1000 : version / 10000;
  const int minor = old ? version / 100 % 10 : version / 100 % 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

Result<Found> find_functions(const FindSymbol& find, const std::string& what) {
  Found found;
  Functions& functions = found.functions;
  if (!resolve(find, "ncclGetVersion", functions.get_version) ||
      functions.get_version(&found.version) != kSuccess) {
    return Status::unavailable(what + " is no NCCL: it does not tell a version of it");
  }
  const std::string name = "NCCL " + version_text(found.version) + " (" + what + ")";
  if (found.version < kOldestVersion) {
    return Status::unavailable(name + " is too old: " + version_text(kOldestVersion) +
                               " or later is needed, as the wheels nvidia-nccl of PyTorch 2 have it");
  }
#define ROUNDELAY_RESOLVE(member, symbol)                     \
  if (!resolve(find, "nccl" #symbol, functions.member)) {     \
    return Status::unavailable(name + " lacks nccl" #symbol); \
  }
  ROUNDELAY_NCCL_FUNCTIONS(ROUNDELAY_RESOLVE)
#undef ROUNDELAY_RESOLVE
  return found;
}

}  // namespace roundelay::platform::nccl
