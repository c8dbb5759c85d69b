// A fabric that says of itself that all its members are on one node, as fabric shm does.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "collective/fabric.h"

namespace roundelay::contract {

class WithinNode final : public collective::Fabric {
 public:
  explicit WithinNode(std::unique_ptr<Fabric> inner)
      : Fabric({.within_node = true}), inner_(std::move(inner)) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const Group& group() const override { return inner_->group(); }
  Result<std::unique_ptr<collective::PendingCall>> start(const collective::Call& call) override {
    return inner_->start(call);
  }
  [[nodiscard]] bool any_thread() const override { return inner_->any_thread(); }
  [[nodiscard]] bool poisoned() const override { return inner_->poisoned(); }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

 private:
  const std::unique_ptr<Fabric> inner_;
};

inline std::unique_ptr<collective::Fabric> within_node(std::unique_ptr<collective::Fabric> inner) {
  return std::make_unique<WithinNode>(std::move(inner));
}

}  // namespace roundelay::contract
