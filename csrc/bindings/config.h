// The Python class Config.
#pragma once

#include "base/config.h"

namespace roundelay::bindings {

// Reads the configuration from this process's environment. Raises ValueError with the name of a variable that
// is set to a bad value.
LoadedConfig load_config_from_environment();

}  // namespace roundelay::bindings
