#include "collective/shm/announcements.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::shm {

Word SegmentAnnouncements::least_word() const {
  Word least = UINT64_MAX;
  for (int member = 0; member < segment_.members(); ++member)
    least = std::min(least, segment_.announced(member).word.load(std::memory_order_seq_cst));
  return least;
}

bool SegmentAnnouncements::raise(Word word) {
  SharedWord<Word>& own = segment_.announced(member_).word;
  const Word before = own.load(std::memory_order_relaxed);
  own.store(word, std::memory_order_seq_cst);
  for (int member = 0; member < segment_.members(); ++member) {
    if (member == member_) continue;
    if (segment_.announced(member).word.load(std::memory_order_seq_cst) <= before) return false;
  }
  return true;
}

void SegmentAnnouncements::ring() {
  for (int member = 0; member < segment_.members(); ++member) {
    for (Doorbell& doorbell : segment_.announced(member).doorbells) {
      if (doorbell.asleep.load(std::memory_order_seq_cst) != 0 && doorbell.asleep.exchange(0) != 0)
        doorbell.ring();
    }
  }
}

void SegmentAnnouncements::show(std::size_t number, const lock::Cell& cell) {
  segment_.cells(member_).all[number].write(cell);
}

lock::Cell SegmentAnnouncements::cell(int member, std::size_t number) const {
  return segment_.cells(member).all[number].read();
}

std::uint32_t SegmentAnnouncements::arm(Sleeper who) {
  const std::uint32_t seen = rings(who);
  own_doorbell(who).asleep.store(1, std::memory_order_seq_cst);
  return seen;
}

// A thread that is marked asleep and is not costs one ring.
void SegmentAnnouncements::set_background_wakeups(bool on) {
  own_doorbell(Sleeper::kBackground).asleep.store(on ? 1 : 0, std::memory_order_seq_cst);
}

void SegmentAnnouncements::wake() {
  for (Doorbell& doorbell : segment_.announced(member_).doorbells) doorbell.ring();
}

}  // namespace roundelay::collective::shm
