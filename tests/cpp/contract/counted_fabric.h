// A fabric over an inproc medium that counts the bytes that a member sends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "collective/engine/algorithm_fabric.h"
#include "collective/inproc/hub.h"

namespace roundelay::contract {

using Counter = std::atomic<std::int64_t>;

// Counts the bytes that are sent.
class CountedTransport final : public collective::Transport {
 public:
  CountedTransport(std::unique_ptr<Transport> inner, Counter& bytes)
      : inner_(std::move(inner)), bytes_(bytes) {}
  [[nodiscard]] int index() const override { return inner_->index(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  Result<collective::TransferId> send(int peer, ConstByteSpan data, int tag) override {
    bytes_ += static_cast<std::int64_t>(data.size());
    return inner_->send(peer, data, tag);
  }
  Result<collective::TransferId> receive(int peer, ByteSpan data, int tag) override {
    return inner_->receive(peer, data, tag);
  }
  Result<bool> test(collective::TransferId id) override { return inner_->test(id); }

 private:
  const std::unique_ptr<Transport> inner_;
  Counter& bytes_;
};

inline std::unique_ptr<collective::Fabric> counted_fabric(collective::InprocHub& hub, const Group& group,
                                                          Counter& bytes) {
  auto state = std::make_shared<collective::FabricState>();
  state->transport = std::make_unique<CountedTransport>(hub.transport(group.index), bytes);
  state->group = group;
  return std::make_unique<collective::AlgorithmFabric>(
      std::move(state), collective::AlgorithmFabric::Options{.name = "counted"});
}

}  // namespace roundelay::contract
