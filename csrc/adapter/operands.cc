#include "adapter/operands.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "adapter/operand.h"

namespace roundelay::adapter {

void Operands::keep(complete::Handle handle, OperandPtr operand) {
  MutexLock lock(mutex_);
  by_handle_.emplace(handle, std::move(operand));
}

OperandPtr Operands::take(complete::Handle handle) {
  MutexLock lock(mutex_);
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return nullptr;
  OperandPtr operand = std::move(found->second);
  by_handle_.erase(found);
  return operand;
}

std::vector<complete::Handle> Operands::handles() const {
  MutexLock lock(mutex_);
  std::vector<complete::Handle> handles;
  handles.reserve(by_handle_.size());
  for (const auto& [handle, operand] : by_handle_) handles.push_back(handle);
  return handles;
}

bool Operands::done(complete::Handle handle) const {
  MutexLock lock(mutex_);
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() || found->second->done();
}

void Operands::retire(OperandPtr operand) {
  MutexLock lock(mutex_);
  retired_.push_back(std::move(operand));
}

std::vector<OperandPtr> Operands::reclaim() {
  MutexLock lock(mutex_);
  const auto first = std::partition(retired_.begin(), retired_.end(),
                                    [](const OperandPtr& operand) { return !operand->done(); });
  std::vector<OperandPtr> reclaimed(std::make_move_iterator(first), std::make_move_iterator(retired_.end()));
  retired_.erase(first, retired_.end());
  return reclaimed;
}

}  // namespace roundelay::adapter
