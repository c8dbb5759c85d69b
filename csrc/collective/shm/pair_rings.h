// The memory through which the members of a node send messages to each other (shm_transport.h). Each ordered
// pair has a ring of bytes, and a ring of notices in which the receiver tells the tags of its posted
// receives.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "collective/shm/segment.h"
#include "platform/shm/ring.h"

namespace roundelay::collective::shm {

// A view of the memory. Copies see the same memory.
class PairRings {
 public:
  static constexpr std::size_t kRingBytes = 256 << 10;
  static constexpr std::size_t kNoticeBytes = 512;

  // Returns the size of the memory for `members` members: 16 MiB for eight. All but control_bytes() of it is
  // rings, and a pair that does not talk does not touch its ring.
  static constexpr std::size_t bytes(int members) {
    return ring_of(members - 1, members - 1, members).offset + kRingBytes;
  }
  // Returns the size of the first part of the memory, which must be allocated before use: 64 KiB for eight.
  static constexpr std::size_t control_bytes(int members) {
    const auto count = static_cast<std::size_t>(members);
    return Segment::whole_pages_up(count * sizeof(Doorbell) + count * count * sizeof(Control));
  }
  // Returns the place of a pair's ring. Its size is a power of two, of whole pages.
  static constexpr ByteRange ring_of(int from, int to, int members) {
    return {control_bytes(members) + pair(from, to, members) * kRingBytes, kRingBytes};
  }

  // `memory` has bytes(members) bytes, is page-aligned, outlives the view, and was zero before the first
  // member came.
  PairRings(std::byte* memory, int members) : memory_(memory), members_(members) {}

  [[nodiscard]] Doorbell& doorbell(int member) const { return reinterpret_cast<Doorbell*>(memory_)[member]; }
  // `from` writes it, `to` reads it.
  [[nodiscard]] platform::Ring bytes(int from, int to) const {
    Control& control = this->control(from, to);
    const ByteRange place = ring_of(from, to, members_);
    return {control.writer, control.reader, {memory_ + place.offset, place.bytes}};
  }
  // `to` writes it, `from` reads it.
  [[nodiscard]] platform::Ring notices(int from, int to) const {
    Control& control = this->control(from, to);
    return {control.notices_writer, control.notices_reader, control.notices};
  }

 private:
  struct Control {
    platform::Ring::Writer writer;
    platform::Ring::Reader reader;
    platform::Ring::Writer notices_writer;
    platform::Ring::Reader notices_reader;
    std::byte notices[kNoticeBytes];
  };

  static constexpr std::size_t pair(int from, int to, int members) {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(members) + static_cast<std::size_t>(to);
  }
  [[nodiscard]] Control& control(int from, int to) const {
    return reinterpret_cast<Control*>(&doorbell(members_))[pair(from, to, members_)];
  }

  std::byte* memory_;
  int members_;
};

}  // namespace roundelay::collective::shm
