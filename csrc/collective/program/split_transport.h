#pragma once

#include <memory>
#include <vector>

#include "base/group.h"
#include "collective/program/transport.h"

namespace roundelay::collective {

// A Transport that reaches the members of this node over one transport and all others over another one.
class SplitTransport final : public Transport {
 public:
  // `near` connects the members of `node`, which is a part of `group`; `far` connects at least this member
  // with the others, and has the group's indices.
  SplitTransport(std::unique_ptr<Transport> near, const Group& node, std::unique_ptr<Transport> far,
                 const Group& group);

  [[nodiscard]] int index() const override { return far_->index(); }
  [[nodiscard]] int size() const override { return far_->size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override;
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override;
  Result<bool> test(TransferId id) override { return of(id).test(id / 2); }
  [[nodiscard]] bool waits_for_peer(TransferId id) override { return of(id).waits_for_peer(id / 2); }
  // One thread cannot sleep in both. Sleeps in the near one, but only briefly.
  [[nodiscard]] Nap nap(Backoff& backoff) override;
  void wake() override { near_->wake(); }

 private:
  static constexpr int kFar = -1;

  // Ids of the near transport are even here, and those of the far one odd.
  Transport& of(TransferId id) { return id % 2 == 0 ? *near_ : *far_; }
  [[nodiscard]] int place(int peer) const { return places_[static_cast<std::size_t>(peer)]; }

  const std::unique_ptr<Transport> near_, far_;
  std::vector<int> places_;  // of each member: its index in the node, or kFar
};

}  // namespace roundelay::collective
