// How far each member of a group is in a schedule that all of them know (submit/schedule_lock.h): one word a
// member, which its owner makes grow and the others see at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/futex.h"

namespace roundelay {

// Locks of a lane are numbered from 1: what a member has announced under another one does not count.
inline constexpr int kAnnouncedBits = 40;

constexpr std::uint64_t announcement(std::uint64_t lock, std::uint64_t count) {
  return (lock << kAnnouncedBits) + count;
}
constexpr std::uint64_t announced_under(std::uint64_t lock, std::uint64_t word) {
  return word >> kAnnouncedBits == lock ? word - (lock << kAnnouncedBits) : 0;
}

// One member's end. From any thread, but announce() by one at a time.
class Announcements {
 public:
  // Who sleeps until the least word may have grown. While a driver watches, the background need not be woken.
  enum class Sleeper : unsigned char { kBackground, kDriver };
  static constexpr int kSleepers = 2;

  virtual ~Announcements() = default;
  [[nodiscard]] virtual int members() const = 0;
  [[nodiscard]] virtual std::uint64_t word(int member) const = 0;
  // This member's next word. Where it was the one that all others are past, wakes who sleeps.
  virtual void announce(std::uint64_t word) = 0;

  // To sleep: arm(), look whether there is something to do, then futex_wait(doorbell(), what arm() gave).
  virtual std::uint32_t arm(Sleeper who) = 0;
  [[nodiscard]] virtual const FutexWord& doorbell(Sleeper who) const = 0;
  // From false to true: words that grow wake this member's driver only. Back: who left looks once more.
  virtual void spare_background(bool spare) = 0;
  // Wakes this member's own sleepers.
  virtual void wake() = 0;

  // What all members have announced under this lock.
  [[nodiscard]] std::uint64_t least(std::uint64_t lock) const {
    std::uint64_t least = UINT64_MAX;
    for (int member = 0; member < members(); ++member) {
      least = std::min(least, announced_under(lock, word(member)));
    }
    return least;
  }
};

}  // namespace roundelay
