// Some members skip a call because they have joined. The others carry it out as a smaller group.
#pragma once

#include <vector>

#include "collective/call.h"

namespace roundelay::collective {

// Returns whether this index of the group is among the absent members.
bool is_absent(const CallOptions& call, int member);

// Returns the group's indices of the members that take part, ascending.
std::vector<int> present_members(const CallOptions& call, int size);

// Returns the call as a group of the present members alone sees it: root and sizes are by their positions.
Call among_present(const Call& call, int size);

}  // namespace roundelay::collective
