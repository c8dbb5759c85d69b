#include "lock/relay.h"

#include <algorithm>
#include <utility>

namespace roundelay::lock {

Relay::Relay(NodeBoard& board, NodeTree tree, int member)
    : board_(board), tree_(std::move(tree)), member_(member), carrier_(tree_) {}

void Relay::connect(Send send) {
  MutexLock lock(mutex_);
  send_ = std::move(send);
  if (leads()) carry();
}

void Relay::node_announced() {
  MutexLock lock(mutex_);
  if (leads()) {
    carry();
  } else if (send_) {
    send_(tree_.leader(), {});
  }
}

void Relay::look() {
  MutexLock lock(mutex_);
  if (leads()) carry();
}

void Relay::wake() {
  MutexLock lock(mutex_);
  if (send_) send_(member_, {});
}

Status Relay::take(int from, const wire::Announced& message) {
  MutexLock lock(mutex_);
  if (leads() && std::ranges::binary_search(tree_.own(), from)) {
    carry();
    return {};
  }
  if (!leads()) return Status::internal("it announces to a rank that leads no node");
  ROUNDELAY_RETURN_IF_ERROR(carrier_.take(board_, from, message));
  carry();
  return {};
}

void Relay::carry() {
  if (send_) carrier_.carry(board_, send_);
}

}  // namespace roundelay::lock
