// Describes where memory lies: on the host, on a GPU, or on both. The driver knows it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace roundelay {

enum class MemoryKind : std::uint8_t {
  kHost,        // the driver knows nothing of it
  kRegistered,  // host memory that is pinned, or registered with the driver
  kDevice,
  kManaged  // moves between host and device
};

struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;            // -1: none
  std::uint64_t context = 0;  // the driver's; 0: not asked for

  bool operator==(const MemoryPlace&) const = default;
};

// A range of addresses that has one life: an allocation, a registration, a mapping.
struct Allocation {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  MemoryPlace place{};

  [[nodiscard]] std::uintptr_t end() const { return base + bytes; }
};

// Answers where an address lies. Thread-safe.
class PointerDriver {
 public:
  virtual ~PointerDriver() = default;
  // Asks the driver for the allocation that has this address. 0 bytes: the driver knows none, so that the
  // memory is the host's. Errors: kAborted (the driver failed).
  [[nodiscard]] virtual Result<Allocation> ask(const void* address) = 0;
};

// Is told of all memory that this process allocates or frees, maps or unmaps, registers or unregisters.
// Thread-safe. Calls come in pairs, around the driver's function: before begin_change() the memory is as it
// was, after end_change() as it will be.
class MemoryListener {
 public:
  virtual ~MemoryListener() = default;
  // Some of these bytes change now. If only the first address is known, `bytes` is 1.
  virtual void begin_change(std::uintptr_t base, std::size_t bytes) = 0;
  virtual void end_change() = 0;
  // From now on changes may go unreported: no answer may be kept.
  virtual void stop_keeping() = 0;
};

}  // namespace roundelay
