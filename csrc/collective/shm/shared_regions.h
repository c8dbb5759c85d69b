// Regions after a group's segment, in the same memory. A member makes one without talking to the others.
#pragma once

#include <memory>

#include "base/group.h"
#include "base/region.h"
#include "platform/shm/memory.h"

namespace roundelay::collective {

// Returns the maker of such regions. `segment` is the memory that all members of the group share; the maker
// shares its ownership. Keys are below 2^22. A region allocates the pages of its own part and gives them back
// at its end. Forked children have a copy of that part. Errors: kUnavailable (no memory, or this member's
// last region with this key is still in use; with the reason).
RegionMaker shared_regions(std::shared_ptr<const platform::SharedMemory> segment, const Group& group);

}  // namespace roundelay::collective
