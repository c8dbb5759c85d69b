// The configuration as Python sees it.
#pragma once

#include "base/config.h"

namespace roundelay::bindings {

// From this process's environment. Errors: ValueError, naming the variable.
LoadedConfig load_config_from_environment();

}  // namespace roundelay::bindings
