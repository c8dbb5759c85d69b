// Carries announcements (lock/announcements.h) between the nodes of a group.
//
// The first member of each node leads it. The leaders form a tree (lock/node_tree.h). Along each edge,
// in each direction, travels the least word of all members on the near side, as soon as it grows, with the
// cells that they have shown. So a position costs two messages an edge, and two nodes exchange one each. A
// leader writes what comes into memory that its node shares. A member that completes a position on its node,
// and does not lead it, asks the leader to look.
//
// Cells come before the words that count on them: one message has both, messages keep their order, and a
// leader sends one at a time. A cell that was sent is not sent again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/annotations.h"
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

// Thread-safe.
class Relay {
 public:
  // Sends to a member of the group. Any thread; it does not block, and may drop a message to a rank that is
  // gone.
  using Send = std::function<void(int member, wire::Announced message)>;

  // `board` outlives the relay. `member`: this rank's index in the group.
  Relay(NodeBoard& board, NodeTree tree, int member);

  // Begins to carry, or, without a function, ends: calls of the last one are then over.
  void connect(Send send) EXCLUDES(mutex_);
  // Tells that all members of this node have announced more: carries it, or asks who leads the node to.
  void node_announced() EXCLUDES(mutex_);
  // Carries what the members of this node have announced, if this rank leads it.
  void look() EXCLUDES(mutex_);
  // Ends a sleep of this process in the channel.
  void wake() EXCLUDES(mutex_);
  [[nodiscard]] bool leads() const { return member_ == tree_.leader(); }
  // Takes a message of a member. kInternal: that rank broke the protocol, and the job has to end.
  Status take(int from, const wire::Announced& message) EXCLUDES(mutex_);

 private:
  struct Edge {
    NodeEdge to;
    std::uint64_t received = 0, sent = 0;   // words
    std::vector<wire::ShownCell> unsent{};  // cells that go with the next word
  };

  void carry() REQUIRES(mutex_);
  Status take_from_edge(Edge& edge, const wire::Announced& message) REQUIRES(mutex_);
  void collect_own_cells() REQUIRES(mutex_);

  NodeBoard& board_;
  const NodeTree tree_;
  const int member_;
  Mutex mutex_;
  Send send_ GUARDED_BY(mutex_);
  std::vector<Edge> edges_ GUARDED_BY(mutex_);
  // The submissions whose cells were collected, by place in tree_.own() and number.
  std::vector<std::vector<std::uint64_t>> collected_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::lock
