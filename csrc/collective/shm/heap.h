// What the programs need of a heap (collective/shm/shared_heap.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace roundelay::collective::shm {

// Memory in which members of a group allocate each for itself, and reach what the others have. Thread-safe.
class Heap {
 public:
  virtual ~Heap() = default;
  // Returns where these bytes lie in this member's part. Nothing: they lie elsewhere, or a member does not
  // reach the others' parts.
  [[nodiscard]] virtual std::optional<std::uint64_t> find(ConstByteSpan bytes) const = 0;
  // Returns what lies in a member's part from a place on that its find() has returned.
  [[nodiscard]] virtual std::byte* at(int member, std::uint64_t place) const = 0;
};

}  // namespace roundelay::collective::shm
