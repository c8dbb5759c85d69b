// Keeps the tensors of operations that were submitted and not yet synchronized.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "complete/handles.h"

namespace roundelay::adapter {

class Operand;
// Deletes an operand. It is defined in operand.cc, so that code that only keeps operands needs no tensor
// headers.
struct OperandDeleter {
  void operator()(Operand* operand) const;
};
using OperandPtr = std::unique_ptr<Operand, OperandDeleter>;

// Thread-safe. Never destroys a tensor: the caller owns a returned operand, and destroys it with the GIL and
// without a lock.
//
// The caller of an operation on a GPU continues before the device is done. If the caller's stream does not
// tell when memory is free, the tensors stay here until the device is done.
class Operands {
 public:
  // Keeps the operand of an operation until take().
  void keep(complete::Handle handle, OperandPtr operand) EXCLUDES(mutex_);
  // Returns the handle's operand, which leaves the table. Null if there is none (a barrier, an unknown
  // handle).
  [[nodiscard]] OperandPtr take(complete::Handle handle) EXCLUDES(mutex_);
  // Returns the handles whose operands are kept.
  [[nodiscard]] std::vector<complete::Handle> handles() const EXCLUDES(mutex_);
  // Returns true if the device has finished the results of a handle that is done, or if the handle has no
  // operand.
  [[nodiscard]] bool done(complete::Handle handle) const EXCLUDES(mutex_);

  // Keeps the operand of an operation that is over for its caller until the device is done with it.
  void retire(OperandPtr operand) EXCLUDES(mutex_);
  // Returns the operands from retire() that the device is done with.
  [[nodiscard]] std::vector<OperandPtr> reclaim() EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::unordered_map<complete::Handle, OperandPtr> by_handle_ GUARDED_BY(mutex_);
  std::vector<OperandPtr> retired_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::adapter
