// The shared memory of a node's control plane: a ring of bytes from each rank to each other, and for each
// rank two flags that tell whether it polls or sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/shm/ring.h"

namespace roundelay::channel {

using platform::Ring;

// All rings of a node. The memory must be zeros before the first rank uses it. Does not own the memory.
class Rings {
 public:
  // One rank's flags.
  struct alignas(128) SleepState {
    std::atomic<std::uint32_t> polling{0};  // a thread polls: peers need not wake anyone
    std::atomic<std::uint32_t> asleep{0};   // set before a sleep, cleared by the peer that ends it
  };

  // Returns the memory that a node of `ranks` ranks needs: 65 KiB for two, 17 MiB for 64.
  static constexpr std::size_t bytes(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    return n * sizeof(SleepState) + n * n * (sizeof(Ring::Writer) + sizeof(Ring::Reader) + ring_bytes(ranks));
  }

  Rings(std::byte* memory, int ranks) : memory_(memory), ranks_(static_cast<std::size_t>(ranks)) {}

  // `rank`, `from` and `to` are indices within the node.
  [[nodiscard]] SleepState& sleep_state(int rank) const;
  [[nodiscard]] Ring ring(int from, int to) const;

 private:
  static constexpr std::size_t ring_bytes(int ranks) { return std::size_t{ranks <= 16 ? 16U : 4U} << 10U; }

  std::byte* memory_;
  std::size_t ranks_;
};

}  // namespace roundelay::channel
