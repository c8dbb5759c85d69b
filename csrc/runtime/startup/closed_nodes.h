// Finds the nodes whose ranks cannot share memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace roundelay::runtime {

// What a rank's introduction (wire/messages.h) tells all ranks of its place.
struct NodeInfo {
  std::string node;
  std::string shm_socket;  // the address at which the rank hands out shared memory; empty: it does not
  std::string machine{};   // equal on the ranks that one kernel runs; empty: not known
};

// Connects to the shm sockets of the other ranks on this node, as all ranks do, and tells all ranks the
// outcome. Returns the nodes whose ranks cannot share memory, with the reasons; the same on all ranks.
// `no_shm_socket`: why this rank has none; empty: it has one. Errors: those of the bootstrap; kUnavailable,
// on all ranks, with the uid, if another user answers in a rank's place: no rank takes another fabric then,
// because there the other user would be admitted.
Result<std::map<std::string, std::string>> closed_nodes(bootstrap::Bootstrap& ranks,
                                                        const std::vector<NodeInfo>& nodes,
                                                        const std::string& no_shm_socket, Deadline deadline);

}  // namespace roundelay::runtime
