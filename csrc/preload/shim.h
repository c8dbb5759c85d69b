// The process's pointer cache for questions that other libraries ask of the driver, and the changes that keep
// it right.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/memory_place.h"
#include "platform/device/pointer_cache.h"
#include "preload/driver.h"

namespace roundelay::preload {

// Asks the driver's own cuPointerGetAttributes().
class RealDriver final : public PointerDriver {
 public:
  [[nodiscard]] Result<Allocation> ask(const void* address) override;
};

// Thread-safe. The process has one, and never destroys it.
class Shim {
 public:
  static Shim& get();

  // Returns whether answers may come from the cache: all changes are reported to it. The first call tests the
  // hooks (self_test.h); before the process has a driver, it returns false and tests nothing.
  [[nodiscard]] bool on();
  [[nodiscard]] pointers::PointerCache& cache() { return *cache_; }

  // Tell the cache and all listeners, as MemoryListener's functions of the same names.
  void begin_change(std::uintptr_t base, std::size_t bytes);
  void end_change();
  void forget_all() { cache_->forget_all(); }
  // Switches the cache off for good, and those of all listeners. `why`: which changes go unreported from now
  // on.
  void stop(const std::string& why);
  // Returns how many changes have begun.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  // Tells this listener of changes, too, until the process ends. False: there is no room for one more, or
  // changes go unreported.
  bool add(MemoryListener* listener);

  // The bytes that the driver writes for kIsManaged, which is not documented; 0: not known.
  void set_managed_bytes(std::size_t bytes) { managed_bytes_ = bytes; }
  [[nodiscard]] std::size_t managed_bytes() const { return managed_bytes_; }

  // Count questions that come to this library, and those that it passes on.
  void count_question() { questions_.fetch_add(1, std::memory_order_relaxed); }
  void count_passed_on() { passed_on_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t questions() const { return questions_; }
  [[nodiscard]] std::int64_t passed_on() const { return passed_on_; }

 private:
  enum class State : int { kUntested, kTesting, kOn, kOff };

  RealDriver driver_;
  const std::unique_ptr<pointers::PointerCache> cache_ = std::make_unique<pointers::PointerCache>(driver_);
  std::atomic<State> state_{State::kUntested};
  std::atomic<std::uint64_t> changes_{0};
  std::atomic<std::size_t> managed_bytes_{0};
  std::atomic<std::int64_t> questions_{0}, passed_on_{0};
  std::atomic<MemoryListener*> listeners_[8] = {};
};

// Marks a change of memory as long as it exists. A hook makes one before it calls the driver's function.
class Change {
 public:
  explicit Change(std::uintptr_t base = 0, std::size_t bytes = 0) { Shim::get().begin_change(base, bytes); }
  ~Change() { Shim::get().end_change(); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
};

}  // namespace roundelay::preload
