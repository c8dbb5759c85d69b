// Runs N ranks with one GPU each in one thread. Process sets come and go; the seed decides everything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "channel/inproc/hub.h"
#include "tests/cpp/sim/sets_rank.h"

namespace roundelay::sim {

struct Step {
  enum class Kind : unsigned char { kUse, kJoin, kAdd, kRemove };
  Kind kind = Kind::kUse;
  ProcessSetId set = 0;
  std::string name{};
  DeviceType device = DeviceType::kCpu;
};

class SetsWorld {
 public:
  // `sets`: the ranks of each set, by number. Set 0 is the world and exists from the start.
  SetsWorld(std::uint64_t seed, std::vector<std::vector<int>> sets, negotiate::CoordinatorOptions options,
            bool heeds_turns = true)
      : gpus(static_cast<int>(sets.front().size())),
        sets_(std::move(sets)),
        hub_(static_cast<int>(sets_.front().size()), channel::Delivery::kByHand),
        random_(seed) {
    for (const auto& members : sets_)
      words_.push_back(std::make_shared<AnnouncedWords::Words>(members.size()));
    const int size = static_cast<int>(sets_.front().size());
    for (int r = 0; r < size; ++r) {
      ranks.push_back(std::make_unique<SetsRank>(r, size, hub_.channel(r), options, gpus, heeds_turns));
      open(r, 0);
    }
    scripts.resize(ranks.size());
    places_.resize(ranks.size());
  }

  // Runs until nothing more can happen. Returns false if that takes longer than any schedule should.
  bool run() {
    for (int calm = 0, round = 0; calm < 2; ++round) {
      if (round > 200'000) return false;
      if (random_turn() || settle_everyone()) {
        calm = 0;
      } else if (!advance_clock()) {
        ++calm;
      }
    }
    return true;
  }

  void leave(std::size_t r) {
    ranks[r]->negotiator.inbox().request_leave();
    places_[r].step = SIZE_MAX;
    places_[r].leaves = true;
  }
  void kill(std::size_t r) {
    places_[r].gone = true;
    hub_.disconnect(static_cast<int>(r));
  }
  [[nodiscard]] bool gone(std::size_t r) const { return places_[r].gone; }
  [[nodiscard]] bool finished(std::size_t r) const { return places_[r].step >= scripts[r].size(); }
  [[nodiscard]] std::size_t pick(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }
  [[nodiscard]] std::mt19937_64& random() { return random_; }

  Gpus gpus;
  std::vector<std::unique_ptr<SetsRank>> ranks;
  std::vector<std::vector<Step>> scripts;
  // Called before each random turn. Tests inject faults here.
  std::function<void(SetsWorld&, std::size_t turn)> inject;

 private:
  struct Place {
    std::size_t step = 0;
    int stage = 0;
    bool gone = false;
    bool leaves = false;
    bool left = false;
  };

  static LaneId lane_of(ProcessSetId set) { return {.process_set = set}; }

  void open(int rank, ProcessSetId set) {
    const auto& members = sets_[set];
    const auto self = std::find(members.begin(), members.end(), rank);
    if (self == members.end()) return;
    const Group group{set, members, static_cast<int>(self - members.begin())};
    ranks[static_cast<std::size_t>(rank)]->open(lane_of(set), group, words_[set]);
  }

  // Returns true if something was done.
  bool advance(std::size_t r) {
    Place& place = places_[r];
    if (place.gone) return false;
    if (ranks[r]->close_removed()) return true;
    if (finished(r)) return false;
    const int before = place.stage;
    if (!take(r, scripts[r][place.step], place.stage)) return place.stage != before;
    ++place.step;
    place.stage = 0;
    if (pick(4) == 0) ranks[r]->negotiator.inbox().request_flush();
    return true;
  }

  // Returns true if the step is over.
  bool take(std::size_t r, const Step& step, int& stage) {
    switch (step.kind) {
      case Step::Kind::kUse: {
        wire::Request request;
        request.name = step.name;
        request.shape = {4};
        request.device = step.device;
        return ranks[r]->find(lane_of(step.set)) == nullptr ||
               ranks[r]->submit(lane_of(step.set), std::move(request));
      }
      case Step::Kind::kJoin: {
        wire::Request request;
        request.operation = Operation::kJoin;
        return in_world(r, std::move(request), submit::kJoinName, stage);
      }
      case Step::Kind::kAdd:
        return add(r, step.set, stage);
      default:
        return remove(r, step.set, stage);
    }
  }

  // Returns true when all ranks have come.
  bool in_world(std::size_t r, wire::Request request, const std::string& name, int& stage) {
    if (stage == 0) {
      if (!ranks[r]->submit(LaneId{}, std::move(request))) return false;
      ranks[r]->negotiator.inbox().request_flush(LaneId{});
      stage = 1;
    }
    return !SetsRank::waits_for(*ranks[r]->find(LaneId{}), name);
  }
  // Returns true when it is over. failed_in_world() then tells whether it failed.
  bool agree(std::size_t r, const std::string& name, int& stage) {
    wire::Request request;
    request.name = name;
    request.cacheable = false;
    return in_world(r, std::move(request), name, stage);
  }
  [[nodiscard]] bool failed_in_world(std::size_t r, const std::string& name) const {
    return ranks[r]->find(LaneId{})->failed.contains(name);
  }

  bool add(std::size_t r, ProcessSetId set, int& stage) {
    const std::string name = "add." + std::to_string(set);
    if (stage == 0 && ranks[r]->aborted.ok()) open(static_cast<int>(r), set);
    if (!agree(r, name, stage)) return false;
    if (failed_in_world(r, name) && ranks[r]->find(lane_of(set)) != nullptr) ranks[r]->close(lane_of(set));
    return true;
  }

  bool remove(std::size_t r, ProcessSetId set, int& stage) {
    const std::string name = "remove." + std::to_string(set);
    if (stage < 2 && !agree(r, name, stage)) return false;
    SetsRank::Lane* lane = ranks[r]->find(lane_of(set));
    if (lane == nullptr || failed_in_world(r, name)) return true;
    if (stage < 2) ranks[r]->begin_removal(lane_of(set));
    stage = 2;
    return pick(4) == 0;  // another thread of the rank may do something else
  }

  // A rank that has left says so once more and reads no more messages. It still runs what was ordered.
  bool step(std::size_t r) {
    const auto& lanes = ranks[r]->lanes;
    const auto over = [](const auto& entry) { return entry.second->over(); };
    if (places_[r].leaves && std::all_of(lanes.begin(), lanes.end(), over) &&
        std::exchange(places_[r].left, true))
      return false;
    return ranks[r]->negotiator.step(now_);
  }

  bool deliver_one() {
    const auto links = hub_.pending_links();
    if (links.empty()) return false;
    const auto link = links[pick(links.size())];
    return hub_.deliver(link.from, link.to);
  }

  bool random_turn() {
    if (inject) inject(*this, turn_++);
    const std::size_t r = pick(ranks.size());
    const std::size_t what = pick(7);
    if (what == 0) return deliver_one();
    if (what == 1) return gpus.run();
    if (places_[r].gone) return false;
    if (what < 4) return advance(r);
    if (what == 4) return step(r);  // also without a reason, as after a spurious wake-up
    const LaneId lane =
        std::next(ranks[r]->lanes.begin(), static_cast<std::ptrdiff_t>(pick(ranks[r]->lanes.size())))->first;
    return what == 5 ? ranks[r]->run_lane(lane) : ranks[r]->enter(lane);
  }

  // Nothing moved in random turns: gives every rank one turn of each kind.
  bool settle_everyone() {
    bool moved = deliver_one();
    moved = gpus.run() || moved;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (places_[r].gone) continue;
      moved = step(r) || moved;
      for (auto& [id, lane] : ranks[r]->lanes) {
        moved = ranks[r]->enter(id) || moved;
        moved = ranks[r]->run_lane(id) || moved;
      }
      moved = advance(r) || moved;
    }
    return moved;
  }

  bool advance_clock() {
    Deadline due = Deadline::never();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (places_[r].gone) continue;
      due = due.sooner(ranks[r]->negotiator.next_due());
      for (auto& [id, lane] : ranks[r]->lanes) due = due.sooner(lane->table.look(now_));
    }
    if (due == Deadline::never()) return false;
    now_ = std::max(now_ + std::chrono::microseconds(1), due.when());
    return true;
  }

  const std::vector<std::vector<int>> sets_;
  channel::Hub hub_;
  std::mt19937_64 random_;
  TimePoint now_{std::chrono::seconds(1000)};
  std::vector<std::shared_ptr<AnnouncedWords::Words>> words_;
  std::vector<Place> places_;
  std::size_t turn_ = 0;
};

}  // namespace roundelay::sim
