// What one leader has received and sent along its node's edges (lock/relay.h). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "lock/announcements.h"
#include "lock/node_tree.h"
#include "wire/messages.h"

namespace roundelay::lock {

// What the members of a node have announced, and where they read what others have. Thread-safe, but only the
// relay of the node's leader calls put() and raise_others(), one call at a time.
class NodeBoard {
 public:
  virtual ~NodeBoard() = default;
  // Returns the least word of the node's members.
  [[nodiscard]] virtual std::uint64_t least_word() const = 0;
  // Returns the cell of a member of the node.
  [[nodiscard]] virtual Cell shown(int member, std::size_t number) const = 0;
  virtual void put(int member, std::size_t number, const Cell& cell) = 0;
  // Raises the least word of all members elsewhere. Wakes the node's sleepers if all members have now
  // announced more.
  virtual void raise_others(std::uint64_t word) = 0;
};

class Carrier {
 public:
  // Sends to a member of the group.
  using Send = std::function<void(int member, wire::Announced message)>;

  explicit Carrier(const NodeTree& tree);

  // Takes a message of another member. kInternal: that rank broke the protocol, and the job has to end.
  Status take(NodeBoard& board, int from, const wire::Announced& message);
  // Sends along each edge what has grown on this side of it.
  void carry(const NodeBoard& board, const Send& send);

  friend bool operator==(const Carrier&, const Carrier&) = default;

 private:
  struct Edge {
    NodeEdge to;
    std::uint64_t received = 0, sent = 0;   // words
    std::vector<wire::ShownCell> unsent{};  // cells that go with the next word
    friend bool operator==(const Edge&, const Edge&) = default;
  };

  void collect_own_cells(const NodeBoard& board);

  std::vector<int> own_;  // the node's members
  std::vector<Edge> edges_;
  // The submissions whose cells were collected, by place in own_ and number.
  std::vector<std::vector<std::uint64_t>> collected_;
};

}  // namespace roundelay::lock
