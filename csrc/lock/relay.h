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

#include "base/annotations.h"
#include "base/status.h"
#include "lock/carrier.h"
#include "lock/node_tree.h"
#include "wire/messages.h"

namespace roundelay::lock {

// Thread-safe.
class Relay {
 public:
  // Any thread calls it. It does not block, and may drop a message to a rank that is gone.
  using Send = Carrier::Send;

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
  void carry() REQUIRES(mutex_);

  NodeBoard& board_;
  const NodeTree tree_;
  const int member_;
  Mutex mutex_;
  Send send_ GUARDED_BY(mutex_);
  Carrier carrier_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::lock
