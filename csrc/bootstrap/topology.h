// The levels of a job: its ranks by node, the nodes by rack, and so on. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/level_counts.h"
#include "base/status.h"

namespace roundelay::bootstrap {

// A rank's statements about its place in the cluster.
struct Statement {
  std::string node;  // its node id
  // ROUNDELAY_TOPOLOGY: the text of a StatedTopology. Empty: not stated.
  std::string stated;
  // The names that the launcher states, in the form of those in `stated`. Used if no rank states anything
  // else.
  std::string launcher_rack;
};

// The ranks of one node, or of one rack ...
struct Part {
  std::string name;
  std::vector<int> ranks;  // ascending
  friend bool operator==(const Part&, const Part&) = default;
};

// All parts of one kind. Each rank is in one of them.
struct Level {
  std::string name;         // "node", "rack" ...
  std::vector<Part> parts;  // ascending by their first ranks
  friend bool operator==(const Level&, const Level&) = default;
};

// A tree: each part lies within one part of the next level.
struct Topology {
  std::vector<Level> levels;  // innermost first; the first one has the nodes
  std::string unused{};  // the reason why the launcher's statements were not used; empty: they were, or there
                         // are none
};

// Returns the topology that the statements of all ranks, by rank, agree on. `counts`: those that this
// rank states. The counts divide the nodes in the order of the nodes' first ranks. Statements
// of the launcher that do not fit together are left out and are no error. Errors, the same on all ranks:
// kInvalidArgument with ranks, values and the cure if users' statements contradict each other or do not fit
// the nodes.
Result<Topology> topology_of(const std::vector<Statement>& statements, const LevelCounts& counts);

}  // namespace roundelay::bootstrap
