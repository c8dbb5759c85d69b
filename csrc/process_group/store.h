// A store of torch.distributed as the key-value store in which the ranks of a process group meet.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <utility>
#include <vector>

#include "bootstrap/key_value_store.h"

namespace roundelay::process_group {

class C10dStore final : public bootstrap::KeyValueStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<::c10d::Store> store) : store_(std::move(store)) {}
  // Keeps a store in a file for the process's life.
  ~C10dStore() override;

  // Counts the groups of this name and size that have met in the store, with this one. All members get the
  // same number: each asks once for a group, and none for the next one before all have met in this one.
  Result<std::uint32_t> count_group(const std::string& name, int size);

  Status set(const std::string& key, ConstByteSpan value, Deadline deadline) override;
  Result<bool> wait(const std::vector<std::string>& keys, Deadline until, Deadline deadline) override;
  Result<bool> has(const std::string& key, Deadline deadline) override;
  Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline deadline) override;
  Status erase(const std::string& key, Deadline deadline) override;

 private:
  const c10::intrusive_ptr<::c10d::Store> store_;
};

}  // namespace roundelay::process_group
