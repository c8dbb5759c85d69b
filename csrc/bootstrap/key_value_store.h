// What bootstrap/store is written over: a few values that all ranks of a job can see.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::bootstrap {

// One thread at a time. Errors of all calls: kAborted when the store is gone, or does not answer by the
// deadline.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual Status set(const std::string& key, ConstByteSpan value, Deadline deadline) = 0;
  // False if some of them are not there by the deadline.
  virtual Result<bool> wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // Whether it is there now.
  virtual Result<bool> has(const std::string& key, Deadline deadline) = 0;
  // Of keys that are there.
  virtual Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual Status erase(const std::string& key, Deadline deadline) = 0;
};

}  // namespace roundelay::bootstrap
