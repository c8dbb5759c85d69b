// The memory that the members of a group on one node share. Each member has counters, a doorbell that wakes
// it, its announcement word (lock/announcements.h), marks of its calls, cells for agreements, and two slots
// for its bytes. Only its owner writes a word, cell or slot. All members write the doorbells and the claims.
//
// A word has 64 bits and only grows: (call << kRoundBits) + the rounds of that call that are over. So nothing
// is ever reset, and a member that took no part in some calls catches up by writing a larger number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/futex.h"
#include "base/shared_word.h"
#include "collective/call_mark.h"
#include "lock/announcements.h"

namespace roundelay::collective::shm {

using Word = std::uint64_t;
inline constexpr int kRoundBits = 24;  // 8 TiB in slots of 512 KiB; calls: 2^40

constexpr Word word_of(std::uint64_t call, std::uint64_t rounds) { return (call << kRoundBits) + rounds; }

// Shows how far a member has come. Only that member writes here.
struct alignas(128) Progress {
  SharedWord<Word> staged{0};    // its bytes are in its slot, or in its part of a region
  SharedWord<Word> reduced{0};   // its share of the sums is in its slot, or in the region
  SharedWord<Word> released{0};  // it reads no slot of these rounds any more
  SharedWord<Word> left{0};      // not 0: it makes no more calls
  SharedWord<Word> reaches{0};   // the size of the heaps that it has mapped (collective/shm/shared_heap.h)
  // Its bytes of this call are not in its slots, but at this place of its heap. Written before `staged`.
  SharedWord<Word> placed{0}, place{0};
};
static_assert(SharedWord<Word>::is_always_lock_free);

// The futex of a member's sleeping threads. It is apart from Progress, which the peers read all the time.
struct alignas(128) Doorbell {
  FutexWord rings{0};
  SharedWord<std::uint32_t> asleep{0};  // a sleeper sets it, and the thread that rings clears it

  // Wakes the sleepers. Any thread of any member may call it.
  void ring() {
    rings.fetch_add(1, std::memory_order_release);
    futex_wake(rings);
  }
};

// Shows how far a member has come in a locked schedule, and wakes its threads that wait for the others. It
// is apart from what collectives write, because members announce while collectives run.
struct alignas(128) Announced {
  SharedWord<Word> word{0};  // the word of lock/announcements.h
  Doorbell doorbells[lock::Announcements::kSleepers];
};

// A Cell of lock/announcements.h.
struct alignas(64) SharedCell {
  SharedWord<Word> submission{0};  // stored last: a reader that sees it sees the words
  SharedWord<Word> words[7]{};

  void write(const lock::Cell& cell) {
    for (std::size_t i = 0; i < cell.words.size(); ++i)
      words[i].store(cell.words[i], std::memory_order_relaxed);
    submission.store(cell.submission, std::memory_order_release);
  }
  [[nodiscard]] lock::Cell read() const {
    lock::Cell cell{submission.load(std::memory_order_acquire), {}};
    for (std::size_t i = 0; i < cell.words.size(); ++i)
      cell.words[i] = words[i].load(std::memory_order_relaxed);
    return cell;
  }
};
// The marks of a member's last calls (collective/call_mark.h).
struct alignas(128) Marks {
  // A member comes less than this many calls further than one that reads its bytes, or its marks.
  static constexpr std::size_t kCalls = 4;
  struct One {
    SharedWord<Word> call{0};  // 0 while the words change; a reader looks at it before and after
    SharedWord<Word> words[sizeof(CallMark) / sizeof(Word)]{};
  };
  One all[kCalls];

  void write(std::uint64_t call, const CallMark& mark);
  // Returns the mark of a call. Nothing: the member has not come to it, or has gone on.
  [[nodiscard]] std::optional<CallMark> read(std::uint64_t call) const;
};

// The cells of one member.
struct Cells {
  SharedCell all[lock::kCells];
};

// The pieces of a call's work that members have taken: (call << kRoundBits) + pieces. A member that is free
// takes the next one.
struct alignas(128) Claims {
  SharedWord<Word> taken{0};
};

// A view of the memory. Copies see the same memory.
class Segment {
 public:
  static constexpr std::size_t kSlotBytes = 512 << 10;
  static constexpr std::size_t kSlots = 2;
  static constexpr std::size_t kPageBytes = 4096;

  static constexpr std::size_t whole_pages_up(std::size_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  // Returns the size of a segment for `members` members: 2 MiB for two, 64 MiB for 64.
  static constexpr std::size_t bytes(int members, std::size_t slot_bytes = kSlotBytes) {
    return slots_of(members, members, slot_bytes).offset;
  }
  // Returns the slots of a member. Only it writes there, so that the memory should be allocated near it.
  static constexpr ByteRange slots_of(int member, int members, std::size_t slot_bytes = kSlotBytes) {
    const std::size_t each = kSlots * slot_bytes;
    return {control_bytes(members) + static_cast<std::size_t>(member) * each, each};
  }
  static constexpr std::size_t control_bytes(int members) {
    return whole_pages_up(sizeof(Claims) + static_cast<std::size_t>(members) *
                                               (sizeof(Progress) + sizeof(Doorbell) + sizeof(Announced) +
                                                sizeof(Marks) + sizeof(Cells)));
  }

  // `memory` has bytes(members, slot_bytes) bytes, is page-aligned, outlives the view, and was zero before
  // the first member came. A slot has whole cache lines, at least one for each member.
  Segment(std::byte* memory, int members, std::size_t slot_bytes = kSlotBytes)
      : memory_(memory), members_(members), slot_bytes_(slot_bytes) {}

  [[nodiscard]] int members() const { return members_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] Claims& claims() const { return *reinterpret_cast<Claims*>(memory_); }
  [[nodiscard]] Progress& progress(int member) const {
    return reinterpret_cast<Progress*>(memory_ + sizeof(Claims))[member];
  }
  [[nodiscard]] Doorbell& doorbell(int member) const {
    return reinterpret_cast<Doorbell*>(&progress(members_))[member];
  }
  [[nodiscard]] Announced& announced(int member) const {
    return reinterpret_cast<Announced*>(&doorbell(members_))[member];
  }
  [[nodiscard]] Marks& marks(int member) const {
    return reinterpret_cast<Marks*>(&announced(members_))[member];
  }
  [[nodiscard]] Cells& cells(int member) const { return reinterpret_cast<Cells*>(&marks(members_))[member]; }
  [[nodiscard]] std::byte* slot(int member, std::uint64_t number) const {
    return memory_ + slots_of(member, members_, slot_bytes_).offset + (number % kSlots) * slot_bytes_;
  }

 private:
  std::byte* memory_;
  int members_;
  std::size_t slot_bytes_;
};

}  // namespace roundelay::collective::shm
