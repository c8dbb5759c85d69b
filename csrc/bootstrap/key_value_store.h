// The store that bootstrap/store needs: values that all ranks of a job can see.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::bootstrap {

// One thread at a time. All calls return kAborted if the store is gone, or does not answer by the deadline.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual Status set(const std::string& key, ConstByteSpan value, Deadline deadline) = 0;
  // Waits until all keys are set. False if some are not by the deadline.
  virtual Result<bool> wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // True if the key is set now.
  virtual Result<bool> has(const std::string& key, Deadline deadline) = 0;
  // Returns the values of keys that are set.
  virtual Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // Removes the key if it is set.
  virtual Status erase(const std::string& key, Deadline deadline) = 0;
};

}  // namespace roundelay::bootstrap
