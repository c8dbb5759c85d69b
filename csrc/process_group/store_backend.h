// How the ranks of a process group find each other: in the group's own part of torch.distributed's store. All
// bytes between nodes go over TCP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/key_value_store.h"
#include "runtime/backend.h"

namespace roundelay::process_group {

class StoreBackend final : public runtime::Backend {
 public:
  explicit StoreBackend(std::shared_ptr<bootstrap::KeyValueStore> store) : store_(std::move(store)) {}

  [[nodiscard]] std::string version() const override;
  Result<std::unique_ptr<bootstrap::Bootstrap>> bootstrap(const Config& config, const runtime::Start& start,
                                                          Deadline deadline) override;
  [[nodiscard]] std::string fabric_name() const override { return "tcp"; }
  Result<std::unique_ptr<collective::Fabric>> fabric(const Group& group, const Config& config,
                                                     const collective::Select& select) override;
  Result<collective::DeviceMedium> device_medium(const Group& group, const Config& config) override;
  Result<std::unique_ptr<channel::Channel>> channel(const Group& world) override;
  [[nodiscard]] std::string description() const override { return "a store of torch.distributed"; }
  void poison(const std::string& /*why*/) override {}  // a later group begins anew
  [[noreturn]] void abort_job(int exit_code) override;

 private:
  const std::shared_ptr<bootstrap::KeyValueStore> store_;
};

}  // namespace roundelay::process_group
