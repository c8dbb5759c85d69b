// The members of a group by node.
#pragma once

#include <optional>
#include <vector>

#include "base/group.h"
#include "runtime/startup/fabrics.h"

namespace roundelay::runtime {

// Returns a number for the node of each member, the first rank there; members that do not share memory are
// nodes of their own.
std::vector<int> nodes_of(const Fabrics& fabrics, const Group& group);

// Returns the members on this rank's node as a group; nothing if it is alone or they do not share memory.
std::optional<Group> node_group(const Fabrics& fabrics, const Group& group);

}  // namespace roundelay::runtime
