// Makes the messages between two ranks.
#pragma once

#include <memory>

#include "base/group.h"
#include "base/status.h"
#include "collective/point_to_point/point_to_point.h"
#include "runtime/startup/fabrics.h"

namespace roundelay::runtime {

// Makes those of the group that has all ranks, which all call it. They go over shared memory within a node,
// and over TCP. Null: there is one rank. Errors: kUnavailable.
Result<std::unique_ptr<collective::PointToPoint>> make_messages(Fabrics& fabrics, const Group& world);

}  // namespace roundelay::runtime
