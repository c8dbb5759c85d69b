// Sessions with threads as ranks, over shared memory or on several nodes, so that their schedules lock.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/shm/shm_fabric.h"
#include "tests/cpp/announcing_nodes.h"
#include "tests/cpp/contract/session_world.h"
#include "tests/cpp/zeroed_pages.h"

namespace roundelay::contract {

// Gives the world's ranks shared memory on one node, or announcements between several. Rank r is on node
// r % nodes.
inline SessionWorld::Change locking(int size, int nodes) {
  if (nodes == 1) {
    return [memory = segment_memory(size)](runtime::SessionParts& parts) {
      const Group group = parts.fabrics.all.front()->group();
      parts.fabrics.all.front() = collective::make_shm_fabric(memory, group, {.crowded = true});
    };
  }
  std::vector<int> node_of;
  for (int rank = 0; rank < size; ++rank) node_of.push_back(rank % nodes);
  return [all = AnnouncingNodes(node_of, 1)](runtime::SessionParts& parts) {
    parts.fabrics.announcements = all.of(parts.fabrics.all.front()->group());
  };
}

class LockingWorld : public SessionWorld {
 public:
  explicit LockingWorld(int size, Config config = {}, int nodes = 1)
      : SessionWorld(size, std::move(config), locking(size, nodes)) {}

  std::int64_t count(int rank, const std::string& name) const {
    return sessions[static_cast<std::size_t>(rank)]->stats().at(name);
  }
};

// Each tensor is an operation of its own: fusion would depend on the order of arrival.
inline Config one_by_one() {
  Config config;
  config.fusion_threshold = 0;
  config.theta.number = 1;
  config.log_level = LogLevel::kError;
  return config;
}

}  // namespace roundelay::contract
