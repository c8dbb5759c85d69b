// The tensors of all operations that were submitted and not yet synchronized, by handle.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "submit/handles.h"

namespace roundelay::adapter {

class Operand;
// Defined beside Operand, so that who only keeps operands need not know tensors.
struct OperandDeleter {
  void operator()(Operand* operand) const;
};
using OperandPtr = std::unique_ptr<Operand, OperandDeleter>;

// Thread-safe. Never destroys a tensor: what goes out is the caller's, who holds the GIL and no lock.
//
// An operation on a GPU is over for its caller before the device is done with it: where the caller's stream
// does not tell when memory is free, the tensors stay here until it is.
class Operands {
 public:
  void keep(submit::Handle handle, OperandPtr operand) EXCLUDES(mutex_);
  // Null if there is none (a barrier, a handle that is not known).
  [[nodiscard]] OperandPtr take(submit::Handle handle) EXCLUDES(mutex_);
  [[nodiscard]] std::vector<submit::Handle> handles() const EXCLUDES(mutex_);
  // Of a handle that is done: whether its results are there; so they are where there is no operand.
  [[nodiscard]] bool done(submit::Handle handle) const EXCLUDES(mutex_);

  // Is done, and nobody asks for it any more.
  void retire(OperandPtr operand) EXCLUDES(mutex_);
  // Those seen off that the device is done with.
  [[nodiscard]] std::vector<OperandPtr> reclaim() EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::unordered_map<submit::Handle, OperandPtr> by_handle_ GUARDED_BY(mutex_);
  std::vector<OperandPtr> retired_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::adapter
