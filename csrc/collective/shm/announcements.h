// Announcements in a segment, for the processes or threads that share it.
#pragma once

#include <memory>

#include "collective/shm/segment.h"
#include "lock/announcements.h"

namespace roundelay::collective::shm {

// One member's access, where all members share the segment.
class SegmentAnnouncements : public lock::Announcements {
 public:
  // `memory` is the segment of a group of `members` members, or its control part; shares its ownership.
  SegmentAnnouncements(std::shared_ptr<std::byte> memory, int member, int members)
      : memory_(std::move(memory)), segment_(memory_.get(), members), member_(member) {}

  [[nodiscard]] int members() const override { return segment_.members(); }
  [[nodiscard]] std::uint64_t least(std::uint64_t lock) const override {
    return lock::announced_under(lock, least_word());
  }
  void announce(std::uint64_t word) override {
    if (raise(word)) ring();
  }
  void show(std::size_t number, const lock::Cell& cell) override;
  [[nodiscard]] lock::Cell cell(int member, std::size_t number) const override;
  std::uint32_t arm(Sleeper who) override;
  [[nodiscard]] std::uint32_t rings(Sleeper who) const override {
    return own_doorbell(who).rings.load(std::memory_order_acquire);
  }
  [[nodiscard]] const FutexWord& doorbell(Sleeper who) const override { return own_doorbell(who).rings; }
  void set_background_wakeups(bool on) override;
  void wake() override;

 protected:
  // Returns the least word of the members.
  [[nodiscard]] Word least_word() const;
  // Returns this member's word.
  [[nodiscard]] Word own_word() const {
    return segment_.announced(member_).word.load(std::memory_order_relaxed);
  }
  // Stores this member's next word. True: it was the last to announce a position. Sequentially consistent, as
  // arm() is. Either a sleeper sees the word, or this member sees it asleep. If two members are last
  // together, at least one of them sees both words.
  bool raise(Word word);
  // Wakes the sleepers of all members.
  void ring();
  // Returns whether this member's sleeper is armed.
  [[nodiscard]] bool sleeps(Sleeper who) const {
    return own_doorbell(who).asleep.load(std::memory_order_seq_cst) != 0;
  }

 private:
  [[nodiscard]] Doorbell& own_doorbell(Sleeper who) const {
    return segment_.announced(member_).doorbells[static_cast<std::size_t>(who)];
  }

  const std::shared_ptr<std::byte> memory_;
  const Segment segment_;
  const int member_;
};

}  // namespace roundelay::collective::shm
