// Regions behind a group's segment, in the same memory: to make one needs no word with the other members.
#pragma once

#include <memory>

#include "base/group.h"
#include "base/region.h"
#include "platform/shm/memory.h"

namespace roundelay::collective {

// `segment` is the memory that all members of the group share. Keys are below 2^22; a region takes the pages
// of its own part for real, and gives them back at its end. Forked children have a copy of that part. Errors:
// kUnavailable (no memory, with the reason).
RegionMaker shared_regions(std::shared_ptr<const platform::SharedMemory> segment, const Group& group);

}  // namespace roundelay::collective
