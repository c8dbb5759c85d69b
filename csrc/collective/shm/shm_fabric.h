// The data plane of ranks that share memory. Calls in progress at once are carried out one after the other.
#pragma once

#include <memory>

#include "collective/fabric.h"
#include "collective/shm/heap.h"
#include "collective/shm/segment.h"

namespace roundelay::collective {

struct ShmFabricOptions {
  bool crowded = false;  // ranks outnumber cores
  RegionMaker make_region = make_private_region;
  std::shared_ptr<const shm::Heap> heap{};  // in which allreduces work where their bytes lie; null: none
};

// Makes the fabric of one member. `memory` has Segment::bytes(group.size()) bytes, which were zero before the
// first member came. All members, which are threads or processes, have the same memory.
std::unique_ptr<Fabric> make_shm_fabric(std::shared_ptr<std::byte> memory, Group group,
                                        ShmFabricOptions options = {});

}  // namespace roundelay::collective
