#include "channel/shm/rings.h"

namespace roundelay::channel {

Rings::SleepState& Rings::sleep_state(int rank) const { return reinterpret_cast<SleepState*>(memory_)[rank]; }

Ring Rings::ring(int from, int to) const {
  const std::size_t length = ring_bytes(static_cast<int>(ranks_));
  const std::size_t one = sizeof(Ring::Writer) + sizeof(Ring::Reader) + length;
  std::byte* const at = memory_ + ranks_ * sizeof(SleepState) +
                        (static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)) * one;
  return {*reinterpret_cast<Ring::Writer*>(at), *reinterpret_cast<Ring::Reader*>(at + sizeof(Ring::Writer)),
          ByteSpan(at + sizeof(Ring::Writer) + sizeof(Ring::Reader), length)};
}

}  // namespace roundelay::channel
