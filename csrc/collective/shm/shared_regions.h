// Regions after a group's segment, in the same memory. A member makes one without talking to the others.
#pragma once

#include <memory>

#include "base/group.h"
#include "base/region.h"
#include "collective/shm/shared_heap.h"
#include "platform/shm/memory.h"

namespace roundelay::collective {

// Returns the maker of such regions. `segment` is the memory that all members of the group share; the maker
// shares its ownership. Keys are below 2^22. Key 0 asks `heap` for memory (collective/shm/shared_heap.h). A
// region allocates the pages of its own part and gives them back at its end. Forked children have a copy of
// that part. Errors: kUnavailable (no memory, or this member's last region with this key is still in use;
// with the reason).
RegionMaker shared_regions(std::shared_ptr<const platform::SharedMemory> segment, const Group& group,
                           std::shared_ptr<SharedHeap> heap);

}  // namespace roundelay::collective
