// The beginning of a flush step.
#pragma once

#include "compress/technique.h"

namespace roundelay::compress {

// Adds what the technique keeps back in `bucket.state` to the bucket's elements, and clears the state.
[[nodiscard]] Status give_back(const Technique& technique, Workspace& workspace, const Bucket& bucket);

}  // namespace roundelay::compress
