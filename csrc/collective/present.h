// Calls that some members skip because they have joined: the others see a smaller group.
#pragma once

#include "collective/fabric.h"

namespace roundelay::collective {

bool is_absent(const Call& call, int member);

// The group's indices of the members that take part, ascending.
std::vector<int> present_members(const Call& call, int size);

// The same call as a group of the present members alone sees it: root and sizes by their positions.
Call among_present(const Call& call, int size);

}  // namespace roundelay::collective
