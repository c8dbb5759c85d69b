// Answers "where does this pointer point?" without asking the driver each time (Awan et al.).
//
// Rules, which keep an answer from being older than the memory:
// - The first question about an allocation goes to the driver. Its answer, with the whole range, is kept.
// - A change (memory is allocated, freed, mapped, unmapped, registered ...) removes all that it touches,
//   before the driver's function is called.
// - An answer is kept only if no change is under way, and none has begun or ended since the driver was
//   asked: it may have answered for memory that is gone by now.
// - Of host memory only registered ranges are kept: other memory may become a device's without a call that a
//   listener sees.
// So it needs a listener's calls for every change. A user that may miss some calls forget_all() before it
// asks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/annotations.h"
#include "base/memory_place.h"
#include "platform/device/allocation_table.h"

namespace roundelay::pointers {

// Thread-safe. A question that is answered from the cache takes no lock.
class PointerCache final : public MemoryListener {
 public:
  // `driver` outlives it.
  explicit PointerCache(PointerDriver& driver) : driver_(driver) {}

  // Returns where an address lies, which stays allocated meanwhile. Errors: as PointerDriver::ask().
  [[nodiscard]] Result<MemoryPlace> locate(const void* address);
  // Returns the same from the cache alone; nothing if it does not know. Counts hits.
  [[nodiscard]] std::optional<MemoryPlace> known(const void* address);

  void begin_change(std::uintptr_t base, std::size_t bytes) override EXCLUDES(mutex_);
  void end_change() override EXCLUDES(mutex_);
  void stop_keeping() override EXCLUDES(mutex_);
  // Forgets all answers. Callers use it where changes may have gone unreported, as when a device was reset.
  void forget_all() EXCLUDES(mutex_);

  // Each miss is a question to the driver.
  struct Counts {
    std::int64_t hits = 0, misses = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  // Threads count in places of their own, because a common one would cost more than the lookup.
  struct alignas(64) Counter {
    std::atomic<std::int64_t> hits{0}, misses{0};
  };
  [[nodiscard]] Counter& own_counter();
  void keep(const Allocation& answer, std::uint64_t changes_before) EXCLUDES(mutex_);

  PointerDriver& driver_;
  std::atomic<std::uint64_t> changes_{0};  // counts begins and ends
  Mutex mutex_;                            // guards writing to table_
  int under_way_ GUARDED_BY(mutex_) = 0;   // the number of changes that have begun and not ended
  bool keeps_ GUARDED_BY(mutex_) = true;
  AllocationTable table_;
  std::array<Counter, 16> counters_;
};

}  // namespace roundelay::pointers
