// Makes what a lane works with: its fabrics, and, for a group on several nodes, announcements.
#pragma once

#include "base/clock.h"
#include "base/group.h"
#include "base/status.h"
#include "execute/lane_executors.h"
#include "runtime/startup/fabrics.h"

namespace roundelay::runtime {

// Makes the fabrics of a group that may lock schedules. All members call it. If a node has no memory for
// announcements, no member has any, and all steps of the group are negotiated. `fan_out`: of the tree of
// nodes (lock/node_tree.h). `limit`: the most time to wait for members. Errors: those of Fabrics::make().
Result<execute::LaneFabrics> make_lane_fabrics(Fabrics& fabrics, const Group& group, int fan_out,
                                               Duration limit);

}  // namespace roundelay::runtime
