// The cores that ranks of this machine share.
#pragma once

#include <string_view>

namespace roundelay {

// Returns whether this machine, this container or this job has fewer cores than `ranks`. A job's cores are
// those of its cgroup. A rank that spins then takes the core that a peer needs. A launcher may have bound
// this process to fewer cores: that changes nothing, as the other ranks have other cores.
bool outnumber_cores(int ranks);
// Returns the same of all cores of this machine, which the ranks of several containers or emulated nodes
// share.
bool outnumber_machine(int ranks);

// Returns the path of the cgroup (version 2) in the text of /proc/self/cgroup; empty: it has none, or one
// outside of this container.
std::string_view cgroup_in(std::string_view text);
// Returns the number of cores in a list such as "0-3,8"; 0 if it is not such a list.
int cores_in(std::string_view list);

}  // namespace roundelay
