#include "collective/shm/announcements.h"

#include <utility>

namespace roundelay::collective::shm {
namespace {

class SegmentAnnouncements final : public lock::Announcements {
 public:
  SegmentAnnouncements(std::shared_ptr<std::byte> memory, int member, int members)
      : memory_(std::move(memory)), segment_(memory_.get(), members), member_(member) {}

  [[nodiscard]] int members() const override { return segment_.members(); }

  [[nodiscard]] std::uint64_t word(int member) const override {
    return segment_.announced(member).word.load(std::memory_order_seq_cst);
  }

  // Sequentially consistent, as arm() is. Either a sleeper sees the word, or this member sees it asleep. If
  // two members are last together, at least one of them sees both words.
  void announce(std::uint64_t word) override {
    SharedWord<Word>& own = segment_.announced(member_).word;
    const Word before = own.load(std::memory_order_relaxed);
    own.store(word, std::memory_order_seq_cst);
    for (int member = 0; member < members(); ++member) {
      if (member != member_ && this->word(member) <= before) return;  // not the last one
    }
    for (int member = 0; member < members(); ++member) {
      for (Doorbell& doorbell : segment_.announced(member).doorbells) {
        if (doorbell.asleep.load(std::memory_order_seq_cst) != 0 && doorbell.asleep.exchange(0) != 0)
          doorbell.ring();
      }
    }
  }

  void show(std::size_t number, const lock::Cell& cell) override {
    SharedCell& own = segment_.cells(member_).all[number];
    for (std::size_t i = 0; i < cell.words.size(); ++i)
      own.words[i].store(cell.words[i], std::memory_order_relaxed);
    own.submission.store(cell.submission, std::memory_order_release);
  }

  [[nodiscard]] lock::Cell cell(int member, std::size_t number) const override {
    const SharedCell& shown = segment_.cells(member).all[number];
    lock::Cell cell{shown.submission.load(std::memory_order_acquire), {}};
    for (std::size_t i = 0; i < cell.words.size(); ++i)
      cell.words[i] = shown.words[i].load(std::memory_order_relaxed);
    return cell;
  }

  std::uint32_t arm(Sleeper who) override {
    Doorbell& own = own_doorbell(who);
    const std::uint32_t seen = own.rings.load(std::memory_order_acquire);
    own.asleep.store(1, std::memory_order_seq_cst);
    return seen;
  }

  [[nodiscard]] const FutexWord& doorbell(Sleeper who) const override { return own_doorbell(who).rings; }

  // A thread that is marked asleep and is not costs one ring.
  void set_background_wakeups(bool on) override {
    own_doorbell(Sleeper::kBackground).asleep.store(on ? 1 : 0, std::memory_order_seq_cst);
  }

  void wake() override {
    for (Doorbell& doorbell : segment_.announced(member_).doorbells) doorbell.ring();
  }

 private:
  [[nodiscard]] Doorbell& own_doorbell(Sleeper who) const {
    return segment_.announced(member_).doorbells[static_cast<std::size_t>(who)];
  }

  const std::shared_ptr<std::byte> memory_;
  const Segment segment_;
  const int member_;
};

}  // namespace

std::shared_ptr<lock::Announcements> make_announcements(std::shared_ptr<std::byte> memory, int member,
                                                        int members) {
  return std::make_shared<SegmentAnnouncements>(std::move(memory), member, members);
}

}  // namespace roundelay::collective::shm
