#include "base/version.h"

namespace roundelay {

std::string version() { return ROUNDELAY_VERSION; }

}  // namespace roundelay
