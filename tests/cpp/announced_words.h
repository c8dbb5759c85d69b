// Announcements of members in one process. Nobody sleeps, so nothing is woken.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/announcements.h"

namespace roundelay {

class AnnouncedWords final : public Announcements {
 public:
  using Words = std::vector<std::uint64_t>;
  AnnouncedWords(std::shared_ptr<Words> words, int member) : words_(std::move(words)), member_(member) {}

  [[nodiscard]] int members() const override { return static_cast<int>(words_->size()); }
  [[nodiscard]] std::uint64_t word(int member) const override {
    return (*words_)[static_cast<std::size_t>(member)];
  }
  void announce(std::uint64_t word) override { (*words_)[static_cast<std::size_t>(member_)] = word; }
  std::uint32_t arm(Sleeper) override { return 0; }
  [[nodiscard]] const FutexWord& doorbell(Sleeper) const override { return doorbell_; }
  void set_background_wakeups(bool) override {}
  void wake() override {}

 private:
  const std::shared_ptr<Words> words_;
  const int member_;
  FutexWord doorbell_{0};
};

}  // namespace roundelay
