// A flush step, and other steps that send all.
#pragma once

#include "compress/technique.h"

namespace roundelay::compress {

// Adds what the technique keeps back in `bucket.state` to the bucket's elements, and clears the state.
[[nodiscard]] Status give_back(const Technique& technique, Workspace& workspace, const Bucket& bucket);

// Makes the task that does so, and reduces the bucket densely where it lies.
[[nodiscard]] collective::Task reduce_densely(const Technique& technique, Workspace& workspace,
                                              Bucket bucket);

}  // namespace roundelay::compress
