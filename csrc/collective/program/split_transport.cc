#include "collective/program/split_transport.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective {
namespace {

Result<TransferId> numbered(const Result<TransferId>& id, TransferId bit) {
  if (!id.ok()) return id.status();
  return 2 * *id + bit;
}

}  // namespace

SplitTransport::SplitTransport(std::unique_ptr<Transport> near, const Group& node,
                               std::unique_ptr<Transport> far, const Group& group)
    : near_(std::move(near)), far_(std::move(far)) {
  for (const int rank : group.ranks) {
    const auto at = std::find(node.ranks.begin(), node.ranks.end(), rank);
    places_.push_back(at == node.ranks.end() ? kFar : static_cast<int>(at - node.ranks.begin()));
  }
}

Result<TransferId> SplitTransport::send(int peer, ConstByteSpan data, int tag) {
  if (place(peer) == kFar) return numbered(far_->send(peer, data, tag), 1);
  return numbered(near_->send(place(peer), data, tag), 0);
}

Result<TransferId> SplitTransport::receive(int peer, ByteSpan data, int tag) {
  if (place(peer) == kFar) return numbered(far_->receive(peer, data, tag), 1);
  return numbered(near_->receive(place(peer), data, tag), 0);
}

Nap SplitTransport::nap(Backoff& backoff) {
  const Nap pause = backoff.next();
  return pause.sleeps() ? near_->nap(backoff).at_most(pause.length()) : pause;
}

}  // namespace roundelay::collective
