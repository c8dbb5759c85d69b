// The store that bootstrap/store needs: values that all ranks of a job can see.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::bootstrap {

// One thread at a time. Errors of all calls: kAborted (the store is gone, or does not answer by the
// deadline).
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Sets the key's value. An earlier value is lost.
  virtual Status set(const std::string& key, ConstByteSpan value, Deadline deadline) = 0;
  // Waits until all keys are set. Returns false if some are not by `until`. The answer may take up to the
  // deadline.
  virtual Result<bool> wait(const std::vector<std::string>& keys, Deadline until, Deadline deadline) = 0;
  // Returns whether the key is set now.
  virtual Result<bool> has(const std::string& key, Deadline deadline) = 0;
  // Returns the values of the keys, in their order. All of them must be set.
  virtual Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // Removes the key if it is set.
  virtual Status erase(const std::string& key, Deadline deadline) = 0;
};

}  // namespace roundelay::bootstrap
