// A Fabric made of a Transport and the algorithms: what collective/inproc and collective/mpi are built from.
#pragma once

#include <memory>
#include <string_view>

#include "collective/program_pending.h"
#include "collective/select.h"

namespace roundelay::collective {

class AlgorithmFabric final : public Fabric {
 public:
  struct Options {
    std::string_view name;  // of the medium; static storage
    bool any_thread = true;
    Select select = select_algorithm;
  };

  AlgorithmFabric(std::shared_ptr<FabricState> state, Options options);

  [[nodiscard]] std::string_view name() const override { return options_.name; }
  [[nodiscard]] const Group& group() const override { return state_->group; }
  Result<std::unique_ptr<Pending>> start(const Call& call) override;
  [[nodiscard]] bool any_thread() const override { return options_.any_thread; }
  [[nodiscard]] bool poisoned() const override { return !state_->poison.ok(); }

 private:
  const std::shared_ptr<FabricState> state_;  // calls in progress hold it too
  const Options options_;
  int calls_ = 0;
};

}  // namespace roundelay::collective
