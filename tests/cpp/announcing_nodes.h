// Announcements of a group on several nodes, in one process: the members of a node share memory, and relays
// carry the rest.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collective/shm/node_announcements.h"
#include "tests/cpp/zeroed_pages.h"

namespace roundelay {

class AnnouncingNodes {
 public:
  // `nodes`: the node of each member.
  explicit AnnouncingNodes(std::vector<int> nodes, int fan_out = 8)
      : nodes_(std::move(nodes)), fan_out_(fan_out) {
    std::map<int, int> members;
    for (const int node : nodes_) ++members[node];
    for (const auto& [node, count] : members) {
      const std::size_t bytes =
          collective::shm::NodeAnnouncements::bytes(count, static_cast<int>(nodes_.size()));
      memory_[node] = zeroed_pages(bytes);
    }
  }

  [[nodiscard]] std::shared_ptr<lock::Announcements> of(const Group& group) const {
    const int node = nodes_[static_cast<std::size_t>(group.index)];
    return collective::shm::make_announcements(memory_.at(node),
                                               lock::NodeTree(nodes_, group.index, fan_out_), group);
  }

 private:
  const std::vector<int> nodes_;
  const int fan_out_;
  std::map<int, std::shared_ptr<std::byte>> memory_;
};

}  // namespace roundelay
