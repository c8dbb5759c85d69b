// Ranks of one node that share memory. Calls in progress at once are carried out one after the other.
#pragma once

#include <memory>

#include "collective/fabric.h"
#include "collective/shm/segment.h"

namespace roundelay::collective {

struct ShmFabricOptions {
  bool crowded = false;  // ranks outnumber cores
  RegionMaker make_region = make_private_region;
};

// `memory` has Segment::bytes(group.size()) bytes, which were zeros before the first member came, and is the
// same for all members, which are threads or processes.
std::unique_ptr<Fabric> make_shm_fabric(std::shared_ptr<std::byte> memory, Group group,
                                        ShmFabricOptions options = {});

}  // namespace roundelay::collective
