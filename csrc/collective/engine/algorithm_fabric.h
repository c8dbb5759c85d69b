// A Fabric that runs the algorithms of collective/algorithms/ over a Transport. The fabrics inproc, mpi,
// tcp and c10d are made of it.
#pragma once

#include <memory>
#include <string_view>

#include "collective/engine/program_call.h"
#include "collective/tuning/select.h"

namespace roundelay::collective {

class AlgorithmFabric final : public Fabric {
 public:
  struct Options {
    std::string_view name;   // the medium's name, in static storage
    bool any_thread = true;  // the result of Fabric::any_thread()
    Select select{};
    Waker* waker = nullptr;  // ends naps of the transport
  };

  // `state` has a group and a transport of that group.
  AlgorithmFabric(std::shared_ptr<FabricState> state, Options options);

  [[nodiscard]] std::string_view name() const override { return options_.name; }
  [[nodiscard]] const Group& group() const override { return state_->group; }
  Result<std::unique_ptr<PendingCall>> start(const Call& call) override;
  [[nodiscard]] bool any_thread() const override { return options_.any_thread; }
  [[nodiscard]] bool poisoned() const override { return !state_->poison.ok(); }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

 private:
  const std::shared_ptr<FabricState> state_;  // calls in progress hold it too
  const Options options_;
  int calls_ = 0;  // started so far, modulo the number of tags: calls in progress at once differ in it
};

}  // namespace roundelay::collective
