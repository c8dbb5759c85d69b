#include "adapter/operands.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "adapter/operand.h"

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

bool Operands::there(submit::Handle handle) const {
  MutexLock lock(mutex_);
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() || found->second->there();
}

void Operands::see_off(OperandPtr operand) {
  MutexLock lock(mutex_);
  departing_.push_back(std::move(operand));
}

std::vector<OperandPtr> Operands::departed() {
  MutexLock lock(mutex_);
  const auto first = std::partition(departing_.begin(), departing_.end(),
                                    [](const OperandPtr& operand) { return !operand->there(); });
  std::vector<OperandPtr> departed(std::make_move_iterator(first), std::make_move_iterator(departing_.end()));
  departing_.erase(first, departing_.end());
  return departed;
}

}  // namespace roundelay::adapter
