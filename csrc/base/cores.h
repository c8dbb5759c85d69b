// The cores that ranks of this machine share.
#pragma once

namespace roundelay {

// Returns whether this machine, or this container, has fewer cores than `ranks`. A rank that spins then takes
// the core that a peer needs. A launcher may have bound this process to fewer cores: that changes nothing, as
// the other ranks have other cores.
bool outnumber_cores(int ranks);

}  // namespace roundelay
