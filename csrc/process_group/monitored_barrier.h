// The barrier that names the ranks that are late: each tells rank 0 that it is here, and goes on when rank 0
// has heard all.
#pragma once

#include <chrono>
#include <memory>

#include "process_group/message_lane.h"

namespace roundelay::process_group {

// Throws c10::DistBackendError, on rank 0 with the late ranks (only the first one unless `all`), on the
// others with rank 0.
void monitored_barrier(MessageLane& lane, int rank, int size, std::chrono::milliseconds timeout, bool all);

}  // namespace roundelay::process_group
