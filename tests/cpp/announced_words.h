// Announcements of members in one process. Nobody sleeps, so nothing is woken.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lock/announcements.h"

namespace roundelay {

class AnnouncedWords : public lock::Announcements {
 public:
  // The words and cells of all members.
  class Words {
   public:
    explicit Words(std::size_t members, std::uint64_t word = 0) : words_(members, word), cells_(members) {}
    [[nodiscard]] std::size_t size() const { return words_.size(); }
    std::uint64_t& operator[](std::size_t member) { return words_[member]; }
    lock::Cell& cell(std::size_t member, std::size_t number) { return cells_[member][number]; }

   private:
    std::vector<std::uint64_t> words_;
    std::vector<std::array<lock::Cell, lock::kCells>> cells_;
  };
  AnnouncedWords(std::shared_ptr<Words> words, int member)
      : words_(std::move(words)), member_(static_cast<std::size_t>(member)) {}

  [[nodiscard]] int members() const override { return static_cast<int>(words_->size()); }
  [[nodiscard]] std::uint64_t least(std::uint64_t lock) const override {
    std::uint64_t least = UINT64_MAX;
    for (std::size_t member = 0; member < words_->size(); ++member)
      least = std::min(least, lock::announced_under(lock, (*words_)[member]));
    return least;
  }
  void announce(std::uint64_t word) override { (*words_)[member_] = word; }
  void show(std::size_t number, const lock::Cell& cell) override { words_->cell(member_, number) = cell; }
  [[nodiscard]] lock::Cell cell(int member, std::size_t number) const override {
    return words_->cell(static_cast<std::size_t>(member), number);
  }
  std::uint32_t arm(Sleeper) override { return 0; }
  [[nodiscard]] std::uint32_t rings(Sleeper) const override { return 0; }
  [[nodiscard]] const FutexWord& doorbell(Sleeper) const override { return doorbell_; }
  void set_background_wakeups(bool) override {}
  void wake() override {}

 private:
  const std::shared_ptr<Words> words_;
  const std::size_t member_;
  FutexWord doorbell_{0};
};

}  // namespace roundelay
