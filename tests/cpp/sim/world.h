// Runs the negotiators of N ranks in one thread, over the inproc channel and with a fake clock. The seed
// decides everything. Each rank follows a script of uses of names. The scheduler picks at random which rank
// submits, steps or receives next. One seed gives one schedule, so a failing one can be run again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "channel/inproc/hub.h"
#include "tests/cpp/sim/rank.h"

namespace roundelay::sim {

struct Script {
  std::vector<Use> uses;
  std::size_t stop_at = SIZE_MAX;  // submits nothing from this use on, but keeps stepping
  bool removes = false;            // removes the process set after its last use
};

class World {
 public:
  World(std::uint64_t seed, int size, negotiate::CoordinatorOptions options)
      : hub_(size, channel::Delivery::kByHand), random_(seed) {
    const auto words = std::make_shared<AnnouncedWords::Words>(size);
    for (int r = 0; r < size; ++r)
      ranks.push_back(std::make_unique<Rank>(r, size, hub_.channel(r), options, words));
    position_.assign(ranks.size(), 0);
    dead_.assign(ranks.size(), false);
    removing_.assign(ranks.size(), false);
  }

  void kill(int rank) {
    dead_[static_cast<std::size_t>(rank)] = true;
    hub_.disconnect(rank);
  }

  // Runs until nothing more can happen. Returns false if that takes longer than any schedule should.
  bool run(const std::vector<Script>& scripts) {
    for (int calm = 0, round = 0; calm < 2; ++round) {
      if (round > 200'000) return false;
      if (random_turn(scripts)) {
        calm = 0;
      } else if (settle_everyone(scripts)) {
        calm = 0;
      } else if (!advance_clock()) {
        ++calm;
      }
    }
    return true;
  }

  [[nodiscard]] std::size_t pick(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }
  [[nodiscard]] std::mt19937_64& random() { return random_; }
  [[nodiscard]] bool dead(std::size_t rank) const { return dead_[rank]; }
  [[nodiscard]] bool links_empty() const { return hub_.pending_links().empty(); }

  std::vector<std::unique_ptr<Rank>> ranks;
  std::size_t messages = 0;
  // Called before each random turn. Tests inject faults here.
  std::function<void(World&, std::size_t turn)> inject;

 private:
  bool submit_next(std::size_t r, const std::vector<Script>& scripts) {
    const Script& script = scripts[r];
    if (dead_[r] || position_[r] >= std::min(script.uses.size(), script.stop_at))
      return !dead_[r] && script.removes && remove_once(r);
    if (!ranks[r]->submit(script.uses[position_[r]], pick(2) == 0)) {
      // The use may never complete, because other ranks remove the set: this rank goes on to remove it too.
      if (script.removes && pick(8) == 0) position_[r] = script.uses.size();
      return script.removes;
    }
    ++position_[r];
    if (pick(4) == 0) ranks[r]->negotiator.inbox().request_flush();
    return true;
  }

  bool remove_once(std::size_t r) {
    if (removing_[r]) return false;
    removing_[r] = true;
    ranks[r]->negotiator.begin_removal(LaneId{});
    return true;
  }

  bool deliver_one() {
    const auto links = hub_.pending_links();
    if (links.empty()) return false;
    const auto link = links[pick(links.size())];
    ++messages;
    return hub_.deliver(link.from, link.to);
  }

  bool random_turn(const std::vector<Script>& scripts) {
    if (inject) inject(*this, turn_++);
    const std::size_t r = pick(ranks.size());
    switch (pick(6)) {
      case 0:
      case 1:
        return submit_next(r, scripts);
      case 2:
        return deliver_one();
      case 3:
        return !dead_[r] && ranks[r]->run_lane();
      case 4:
        return !dead_[r] && ranks[r]->enter();
      default:
        return !dead_[r] &&
               ranks[r]->negotiator.step(now_);  // also without a reason, as after a spurious wake-up
    }
  }

  // Nothing moved in random turns: gives every rank one turn of each kind.
  bool settle_everyone(const std::vector<Script>& scripts) {
    bool moved = deliver_one();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (dead_[r]) continue;
      moved = ranks[r]->negotiator.step(now_) || moved;
      moved = ranks[r]->enter() || moved;
      moved = ranks[r]->run_lane() || moved;
      moved = submit_next(r, scripts) || moved;
    }
    return moved;
  }

  bool advance_clock() {
    Deadline due = Deadline::never();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!dead_[r]) due = due.sooner(ranks[r]->negotiator.next_due()).sooner(ranks[r]->look(now_));
    }
    if (due == Deadline::never()) return false;
    now_ = std::max(now_ + std::chrono::microseconds(1), due.when());
    return true;
  }

  channel::Hub hub_;
  std::mt19937_64 random_;
  TimePoint now_{std::chrono::seconds(1000)};
  std::vector<std::size_t> position_;
  std::vector<bool> dead_;
  std::vector<bool> removing_;
  std::size_t turn_ = 0;
};

}  // namespace roundelay::sim
