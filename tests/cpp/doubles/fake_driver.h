// A fake of a GPU's driver where only its knowledge of addresses matters. It counts questions, takes a
// set time for each, and can be made to answer late: see during_question().
//
// What it leaves out: memory is numbers, nothing is at them. Every range is one allocation (no pool hands out
// parts of one, no reservation holds several mappings), so a test makes several ranges instead.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/memory_place.h"

namespace roundelay::doubles {

// Thread-safe. Changes are told to the listener, as an interposed driver's are.
class FakeDriver final : public PointerDriver {
 public:
  explicit FakeDriver(Duration question_takes = {}) : question_takes_(question_takes) {}

  [[nodiscard]] Result<Allocation> ask(const void* address) override EXCLUDES(mutex_);
  [[nodiscard]] std::int64_t questions() const { return questions_; }

  // Call before any other thread uses it.
  void tell(MemoryListener& listener) { listener_ = &listener; }
  // Runs in every question between the look at the memory and the answer, which is old by then if it changes
  // the memory.
  void during_question(std::function<void()> work) { during_question_ = std::move(work); }
  // Runs in every change that ends memory, after its listener has heard of the beginning and before the
  // memory ends.
  void during_end(std::function<void()> work) { during_end_ = std::move(work); }

  // The range has no address in common with others. begin() tells the listener, too: a change that removes
  // too much is harmless, and it is how a reservation that is mapped anew is heard of.
  void begin(const Allocation& allocation) EXCLUDES(mutex_);
  // Ends the allocation of this base. `told_bytes`: what the listener hears of its size, 1 where the
  // driver's function gets only the address.
  void end(std::uintptr_t base, std::size_t told_bytes) EXCLUDES(mutex_);

 private:
  void tell_begin(std::uintptr_t base, std::size_t bytes);
  void tell_end();

  const Duration question_takes_;
  MemoryListener* listener_ = nullptr;
  std::function<void()> during_question_, during_end_;
  std::atomic<std::int64_t> questions_{0};
  Mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::doubles
