#include "tests/cpp/doubles/fake_driver.h"

namespace roundelay::doubles {

Result<Allocation> FakeDriver::ask(const void* address) {
  ++questions_;
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  Allocation answer;
  {
    const MutexLock lock(mutex_);
    const auto after = allocations_.upper_bound(number);
    if (after != allocations_.begin()) {
      const Allocation& last = std::prev(after)->second;
      if (number < last.end()) answer = last;
    }
  }
  if (during_question_) during_question_();
  const TimePoint begin = steady_now();
  while (steady_now() - begin < question_takes_) {
  }
  return answer;
}

void FakeDriver::begin(const Allocation& allocation) {
  tell_begin(allocation.base, allocation.bytes);
  {
    const MutexLock lock(mutex_);
    allocations_[allocation.base] = allocation;
  }
  tell_end();
}

void FakeDriver::end(std::uintptr_t base, std::size_t told_bytes) {
  tell_begin(base, told_bytes);
  if (during_end_) during_end_();
  {
    const MutexLock lock(mutex_);
    allocations_.erase(base);
  }
  tell_end();
}

void FakeDriver::tell_begin(std::uintptr_t base, std::size_t bytes) {
  if (listener_ != nullptr) listener_->begin_change(base, bytes);
}

void FakeDriver::tell_end() {
  if (listener_ != nullptr) listener_->end_change();
}

}  // namespace roundelay::doubles
