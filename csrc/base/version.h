// The version of this build. All ranks and all modules of a process must have the same one.
#pragma once

#include <string>

namespace roundelay {

std::string version();  // returns "0.1.0"

}  // namespace roundelay
