#include "platform/device/pointer_cache.h"

namespace roundelay::pointers {

PointerCache::Counter& PointerCache::own_counter() {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return counters_[number % counters_.size()];
}

std::optional<MemoryPlace> PointerCache::known(const void* address) {
  const std::optional<MemoryPlace> found = table_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found) own_counter().hits.fetch_add(1, std::memory_order_relaxed);
  return found;
}

Result<MemoryPlace> PointerCache::locate(const void* address) {
  if (const std::optional<MemoryPlace> found = known(address)) return *found;
  own_counter().misses.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t changes_before = changes_.load(std::memory_order_acquire);
  const Result<Allocation> answer = driver_.ask(address);
  if (!answer.ok()) return answer.status();
  if (answer->bytes > 0 && answer->place.kind != MemoryKind::kHost) keep(*answer, changes_before);
  return answer->place;
}

void PointerCache::keep(const Allocation& answer, std::uint64_t changes_before) {
  const MutexLock lock(mutex_);
  if (!keeps_ || under_way_ > 0 || changes_.load(std::memory_order_relaxed) != changes_before) return;
  table_.insert(answer);
}

void PointerCache::begin_change(std::uintptr_t base, std::size_t bytes) {
  const MutexLock lock(mutex_);
  ++under_way_;
  changes_.fetch_add(1, std::memory_order_release);
  table_.erase(base, bytes);
}

void PointerCache::end_change() {
  const MutexLock lock(mutex_);
  --under_way_;
  changes_.fetch_add(1, std::memory_order_release);  // who asked meanwhile may have heard of the old memory
}

void PointerCache::stop_keeping() {
  const MutexLock lock(mutex_);
  keeps_ = false;
  table_.clear();
}

void PointerCache::forget_all() {
  const MutexLock lock(mutex_);
  changes_.fetch_add(1, std::memory_order_release);
  table_.clear();
}

PointerCache::Counts PointerCache::counts() const {
  Counts sum;
  for (const Counter& counter : counters_) {
    sum.hits += counter.hits.load(std::memory_order_relaxed);
    sum.misses += counter.misses.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace roundelay::pointers
