#include "adapter/operands.h"

#include <utility>

namespace roundelay::adapter {

void Operands::keep(submit::Handle handle, OperandPtr operand) {
  MutexLock lock(mutex_);
  by_handle_.emplace(handle, std::move(operand));
}

OperandPtr Operands::take(submit::Handle handle) {
  MutexLock lock(mutex_);
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return nullptr;
  OperandPtr operand = std::move(found->second);
  by_handle_.erase(found);
  return operand;
}

std::vector<submit::Handle> Operands::handles() const {
  MutexLock lock(mutex_);
  std::vector<submit::Handle> handles;
  handles.reserve(by_handle_.size());
  for (const auto& [handle, operand] : by_handle_) handles.push_back(handle);
  return handles;
}

}  // namespace roundelay::adapter
