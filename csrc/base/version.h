// Which build this is: ranks and separately loaded modules must agree on it.
#pragma once

#include <string>

namespace roundelay {

std::string version();  // "0.1.0"

}  // namespace roundelay
