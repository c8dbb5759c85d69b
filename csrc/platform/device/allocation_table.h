// The allocations that a process knows, by address. Readers take no lock: they read while somebody may write,
// and read again if somebody has written meanwhile (a sequence lock).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/memory_place.h"

namespace roundelay::pointers {

// Its memory is bounded: an insertion into a full table clears it first. Any thread may call find(); one
// thread at a time calls the others.
class AllocationTable {
 public:
  static constexpr std::size_t kMost = 4096;

  // Returns where the address lies; nothing if no allocation has it.
  [[nodiscard]] std::optional<MemoryPlace> find(std::uintptr_t address) const;

  // Adds an allocation of at least one byte, and removes all that have an address in common with it.
  void insert(const Allocation& allocation);
  // Removes every allocation that has one of these addresses, as a whole.
  void erase(std::uintptr_t base, std::size_t bytes);
  void clear();
  [[nodiscard]] std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  // All fields are written with release and read with acquire. So a reader that sees a new value also sees
  // the odd version that came before it.
  struct Entry {
    std::atomic<std::uintptr_t> base{0}, end{0};
    std::atomic<std::uint64_t> place{0}, context{0};
    void set(const Entry& other);
  };
  class Writing;

  // Returns the number of entries that end at or before the address.
  [[nodiscard]] std::size_t before(std::uintptr_t address) const;
  [[nodiscard]] std::optional<MemoryPlace> look_up(std::uintptr_t address) const;
  void remove(std::size_t first, std::size_t end);

  std::atomic<std::uint64_t> version_{0};  // odd: somebody writes
  std::atomic<std::size_t> size_{0};
  std::array<Entry, kMost> entries_;  // ascending; no two have an address in common
};

}  // namespace roundelay::pointers
