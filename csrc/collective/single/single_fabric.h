// The fabric of a group of one. Calls copy and scale; they are over when they have started.
#pragma once

#include <memory>

#include "collective/fabric.h"

namespace roundelay::collective {

class SingleFabric final : public Fabric {
 public:
  // `group` has one rank.
  explicit SingleFabric(Group group);

  [[nodiscard]] std::string_view name() const override { return "local"; }
  [[nodiscard]] const Group& group() const override { return group_; }
  Result<std::unique_ptr<PendingCall>> start(const Call& call) override;
  [[nodiscard]] bool any_thread() const override { return true; }
  [[nodiscard]] bool poisoned() const override { return false; }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

 private:
  const Group group_;
};

}  // namespace roundelay::collective
