// Shows the progress of each member of a group in the group's locked schedule: a sequence of operations that
// repeats without end. A position is an index in that sequence. A member announces a position when it has
// submitted all tensors of the operation there. It enters a position, that is, it starts the operation, when
// all members have announced it (lock/schedule_lock.h).
// Each member has one shared word: only it increases the word, and the others on its node see the new value
// at once. It has cells too, in which it shows what its values of agreements change
// (lock/locked_agreement.h). Between nodes a relay carries both (lock/relay.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/futex.h"

namespace roundelay::lock {

// A member's word holds the number of a schedule lock (high bits) and the count of positions that the member
// has announced under that lock (low bits). A lane numbers its schedule locks from 1.
inline constexpr int kAnnouncedBits = 40;

// Makes the word for `count` positions of `lock`.
constexpr std::uint64_t announcement(std::uint64_t lock, std::uint64_t count) {
  return (lock << kAnnouncedBits) + count;
}
// Returns the count that `word` holds for `lock`; 0 if the word belongs to another lock.
constexpr std::uint64_t announced_under(std::uint64_t lock, std::uint64_t word) {
  return word >> kAnnouncedBits == lock ? word - (lock << kAnnouncedBits) : 0;
}

// A member's part in one submission of an agreement, as all members see it: 64 bytes.
struct Cell {
  std::uint64_t submission = 0;          // announcement(lock, number of the submission from 1); 0: of none
  std::array<std::uint64_t, 7> words{};  // a ByteChange (base/agreement.h) in the encoding of wire/layout.h
  friend bool operator==(const Cell&, const Cell&) = default;
};
// The most agreements that the period of a locked schedule has. Each has two cells at each member.
inline constexpr std::size_t kLockedAgreements = 32;
inline constexpr std::size_t kCells = 2 * kLockedAgreements;

class Relay;

// One member's access to the words and cells of its group. Thread-safe, except announce() and show(): one
// thread at a time.
class Announcements {
 public:
  // The two threads of a member that sleep until all members have announced more: the lane's own thread, and
  // a caller that runs the lane while it waits (the driver). A driver lets the lane's thread sleep.
  enum class Sleeper : unsigned char { kBackground, kDriver };
  static constexpr int kSleepers = 2;

  virtual ~Announcements() = default;
  [[nodiscard]] virtual int members() const = 0;
  // Returns how many positions of `lock` all members have announced, as far as this member sees.
  [[nodiscard]] virtual std::uint64_t least(std::uint64_t lock) const = 0;
  // Stores this member's next word, as announcement() makes it. If this member was the last to announce a
  // position, the sleepers of all members wake.
  virtual void announce(std::uint64_t word) = 0;

  // Stores this member's cell of this number, less than kCells. It wakes nobody: announce() follows.
  virtual void show(std::size_t number, const Cell& cell) = 0;
  // Returns a member's cell. A caller that sees least() sees the cells that members have shown before.
  [[nodiscard]] virtual Cell cell(int member, std::size_t number) const = 0;

  // Lets others wake this member's sleeper. To sleep, a thread calls arm(), checks that it has nothing to do,
  // and calls futex_wait() with the word doorbell(who) and the value that arm() returned.
  virtual std::uint32_t arm(Sleeper who) = 0;
  // Returns the same without letting others wake it.
  [[nodiscard]] virtual std::uint32_t rings(Sleeper who) const = 0;
  [[nodiscard]] virtual const FutexWord& doorbell(Sleeper who) const = 0;
  // Says whether new words wake this member's lane thread, too; its driver is woken in any case. After true,
  // the caller checks for words that came in between.
  virtual void set_background_wakeups(bool on) = 0;
  // Wakes this member's own sleepers. The other members' sleep on.
  virtual void wake() = 0;

  // Returns whether messages to this member's process tell of all that members announce, its own threads'
  // aside: it leads its node. A thread may then arm() the driver's doorbell and sleep in the channel.
  [[nodiscard]] virtual bool told_by_messages() const { return false; }
  // Returns what carries announcements to other nodes, and lives as long as this object. Null: all members
  // are on one node.
  [[nodiscard]] virtual Relay* relay() { return nullptr; }
};

}  // namespace roundelay::lock
