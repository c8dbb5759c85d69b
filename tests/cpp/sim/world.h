// N ranks in one thread, on one to four nodes: their negotiators over the inproc channel, process sets that
// come and go, a GPU each, a fake clock, and a seed that decides everything.
//
// Each rank follows a script of submissions. The scheduler picks at random who submits, steps or receives
// next, so that one seed is one schedule, and a failing one can be run again.
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
#include "tests/cpp/announced_words.h"
#include "tests/cpp/announcing_nodes.h"
#include "tests/cpp/sim/rank.h"

namespace roundelay::sim {

struct Script {
  std::vector<Submission> submissions;
  std::size_t stop_at = SIZE_MAX;  // falls silent (but keeps stepping) before this submission
  bool removes = false;            // removes the world after its last submission
  // More than one: so many threads take the submissions in turn, and each waits for its submission before the
  // next one.
  std::size_t threads = 1;
};

// The world ranks of each process set, ascending; set 0 is the world.
using Sets = std::vector<std::vector<int>>;

inline Sets only_world(int size) {
  Sets sets(1);
  for (int rank = 0; rank < size; ++rank) sets[0].push_back(rank);
  return sets;
}

class World {
 public:
  // Set 0 is there from the start; the others come by Submission::Kind::kAddSet.
  World(std::uint64_t seed, Sets sets, negotiate::CoordinatorOptions options, bool heeds_tickets = true)
      : gpus(static_cast<int>(sets.front().size())),
        sets_(std::move(sets)),
        hub_(static_cast<int>(sets_.front().size()), channel::Delivery::kByHand),
        random_(seed) {
    std::mt19937_64 of_nodes(seed);
    const std::size_t nodes = 1 + of_nodes() % 4;
    for (std::size_t r = 0; r < sets_.front().size(); ++r)
      node_of_.push_back(static_cast<int>(of_nodes() % nodes));
    for (const auto& members : sets_)
      announcements_.push_back(announcing(members, 1 + static_cast<int>(of_nodes() % 3)));
    options.fan_out = 1 + static_cast<int>(of_nodes() % 3);
    const int size = static_cast<int>(sets_.front().size());
    for (int r = 0; r < size; ++r) {
      ranks.push_back(std::make_unique<Rank>(r, size, hub_.channel(r), options, gpus, heeds_tickets));
      ranks.back()->negotiator.set_nodes(node_of_);
      open(r, 0);
    }
    scripts.resize(ranks.size());
    places_.resize(ranks.size());
  }
  World(std::uint64_t seed, int size, const negotiate::CoordinatorOptions& options)
      : World(seed, only_world(size), options) {}

  // Runs until nothing can happen any more. Returns false if that takes longer than any schedule should.
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

  // The rank calls shutdown(); its program goes on.
  void leave(std::size_t r) { ranks[r]->negotiator.inbox().request_leave(); }
  // The rank calls shutdown() and exits: its program ends, and it reads no messages when its lanes are over.
  void exit(std::size_t r) {
    leave(r);
    places_[r].step = SIZE_MAX;
    places_[r].exits = true;
  }
  void kill(std::size_t r) {
    places_[r].dead = true;
    hub_.disconnect(static_cast<int>(r));
  }
  [[nodiscard]] bool dead(std::size_t r) const { return places_[r].dead; }
  [[nodiscard]] bool finished(std::size_t r) const {
    return places_[r].step >= scripts[r].submissions.size();
  }
  [[nodiscard]] bool links_empty() const { return hub_.pending_links().empty(); }
  [[nodiscard]] std::size_t pick(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }
  [[nodiscard]] std::mt19937_64& random() { return random_; }

  Gpus gpus;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<Script> scripts;  // by rank; may grow between runs
  std::size_t messages = 0;
  // Called before each random turn. Tests inject faults here.
  std::function<void(World&, std::size_t turn)> inject;

 private:
  // A thread of a rank's program, if there are several.
  struct Thread {
    std::size_t next = 0;        // submission
    std::string waits_for{};     // name; empty: it does not wait
    bool was_impatient = false;  // in this wait
  };
  // A rank in its script.
  struct Place {
    std::size_t step = 0;
    int stage = 0;  // of a step that adds or removes a set
    bool removing = false;
    bool dead = false;
    bool exits = false;
    bool reads_no_more = false;
    std::vector<Thread> threads{};
  };

  static LaneId lane_of(ProcessSetId set) { return {.process_set = set}; }

  void open(int rank, ProcessSetId set) {
    const auto& members = sets_[set];
    const auto self = std::find(members.begin(), members.end(), rank);
    if (self == members.end()) return;
    const Group group{set, members, static_cast<int>(self - members.begin())};
    ranks[static_cast<std::size_t>(rank)]->open(lane_of(set), group, announcements_[set](group));
  }

  [[nodiscard]] std::vector<int> nodes_of(const std::vector<int>& members) const {
    std::vector<int> nodes;
    for (const int rank : members) nodes.push_back(node_of_[static_cast<std::size_t>(rank)]);
    return nodes;
  }

  using MakeAnnouncements = std::function<std::shared_ptr<lock::Announcements>(const Group&)>;

  [[nodiscard]] MakeAnnouncements announcing(const std::vector<int>& members, int fan_out) const {
    const std::vector<int> nodes = nodes_of(members);
    if (std::ranges::count(nodes, nodes.front()) < std::ssize(nodes))
      return [all = AnnouncingNodes(nodes, fan_out)](const Group& group) { return all.of(group); };
    return [words = std::make_shared<AnnouncedWords::Words>(nodes.size())](const Group& group) {
      return std::make_shared<AnnouncedWords>(words, group.index);
    };
  }

  // The rank's program goes on. False if it cannot.
  bool advance(std::size_t r) {
    Place& place = places_[r];
    if (place.dead) return false;
    if (ranks[r]->close_removed()) return true;
    const Script& script = scripts[r];
    if (script.threads > 1) return advance_thread(r, pick(script.threads), pick(8) == 0);
    if (place.step >= std::min(script.submissions.size(), script.stop_at))
      return script.removes && remove_once(r);
    const int before = place.stage;
    if (!take(r, script.submissions[place.step], place.stage)) {
      // Others remove the set, so what the rank waits for may never come: it goes on to remove the set too.
      if (script.removes && pick(8) == 0) place.step = script.submissions.size();
      return script.removes || place.stage != before;
    }
    ++place.step;
    place.stage = 0;
    if (pick(4) == 0) ranks[r]->negotiator.inbox().request_end_of_linger();
    return true;
  }

  // One thread of the rank goes on. `impatient`: if it waits, it ends a schedule that keeps it waiting. It
  // can do that once in a wait.
  bool advance_thread(std::size_t r, std::size_t number, bool impatient) {
    std::vector<Thread>& threads = places_[r].threads;
    while (threads.size() < scripts[r].threads) threads.push_back({.next = threads.size()});
    Thread& thread = threads[number];
    Lane& lane = ranks[r]->world();
    if (!thread.waits_for.empty() && lane.in_flight.contains(thread.waits_for)) {
      if (!impatient || std::exchange(thread.was_impatient, true)) return false;
      const bool was_open = lane.table.schedule_open();
      lane.waits_for(thread.waits_for);
      return was_open != lane.table.schedule_open();
    }
    thread.was_impatient = false;
    thread.waits_for.clear();
    if (thread.next >= scripts[r].submissions.size()) return false;
    const Submission& submission = scripts[r].submissions[thread.next];
    if (!lane.submit(submission, false)) return false;
    thread.next += scripts[r].threads;
    thread.waits_for = submission.name;
    ranks[r]->negotiator.inbox().request_end_of_linger();
    return true;
  }

  bool remove_once(std::size_t r) {
    if (std::exchange(places_[r].removing, true)) return false;
    ranks[r]->negotiator.begin_removal(LaneId{});
    return true;
  }

  // True: the step is over.
  bool take(std::size_t r, const Submission& submission, int& stage) {
    if (submission.kind == Submission::Kind::kAddSet) return add(r, submission.set, stage);
    if (submission.kind == Submission::Kind::kRemoveSet) return remove(r, submission.set, stage);
    Lane* lane = ranks[r]->find(lane_of(submission.set));
    return lane == nullptr || lane->submit(submission, pick(2) == 0);
  }

  // All ranks of the world call this. True: it is over. Its outcome: Lane::failed.
  bool agree(std::size_t r, const std::string& name, int& stage) {
    Lane& world = ranks[r]->world();
    if (stage == 0) {
      if (!world.submit({.name = name, .shape = {}, .cacheable = false}, false)) return false;
      ranks[r]->negotiator.inbox().request_end_of_linger(LaneId{});
      stage = 1;
    }
    return !world.waits_for(name);
  }

  bool add(std::size_t r, ProcessSetId set, int& stage) {
    const std::string name = "add." + std::to_string(set);
    const bool is_new = ranks[r]->find(lane_of(set)) == nullptr;
    if (stage == 0 && is_new && ranks[r]->aborted.ok()) open(static_cast<int>(r), set);
    if (!agree(r, name, stage)) return false;
    const bool failed = ranks[r]->world().failed.contains(name);
    if (failed && ranks[r]->find(lane_of(set)) != nullptr) ranks[r]->close(lane_of(set));
    return true;
  }

  bool remove(std::size_t r, ProcessSetId set, int& stage) {
    const std::string name = "remove." + std::to_string(set);
    if (stage < 2 && !agree(r, name, stage)) return false;
    if (ranks[r]->find(lane_of(set)) == nullptr || ranks[r]->world().failed.contains(name)) return true;
    if (stage < 2) ranks[r]->begin_removal(lane_of(set));
    stage = 2;
    return pick(4) == 0;  // another thread may go on with something else
  }

  // A rank that has exited steps once more and reads no messages any more. Its queues still run.
  bool step(std::size_t r) {
    const auto& lanes = ranks[r]->lanes;
    const auto over = [](const auto& entry) { return entry.second->over(); };
    if (places_[r].exits && std::all_of(lanes.begin(), lanes.end(), over) &&
        std::exchange(places_[r].reads_no_more, true))
      return false;
    return ranks[r]->negotiator.step(now_);
  }

  bool deliver_one() {
    const auto links = hub_.pending_links();
    if (links.empty()) return false;
    const auto link = links[pick(links.size())];
    ++messages;
    return hub_.deliver(link.from, link.to);
  }

  bool random_turn() {
    if (inject) inject(*this, turn_++);
    const std::size_t r = pick(ranks.size());
    const std::size_t what = pick(gpus.any_runnable() ? 7 : 6);
    if (what == 6) return gpus.run();
    if (what == 2) return deliver_one();
    if (places_[r].dead) return false;
    if (what < 2) return advance(r);
    if (what == 5) return step(r);  // also wake-ups for nothing
    const LaneId lane = any_lane(r);
    return what == 3 ? ranks[r]->run_lane(lane) : ranks[r]->enter(lane);
  }

  LaneId any_lane(std::size_t r) {
    const auto& lanes = ranks[r]->lanes;
    if (lanes.size() == 1) return lanes.begin()->first;
    return std::next(lanes.begin(), static_cast<std::ptrdiff_t>(pick(lanes.size())))->first;
  }

  // Nothing moved at random: give everyone one turn of everything.
  bool settle_everyone() {
    bool moved = deliver_one();
    moved = gpus.run() || moved;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (places_[r].dead) continue;
      moved = step(r) || moved;
      for (auto& [id, lane] : ranks[r]->lanes) {
        moved = ranks[r]->enter(id) || moved;
        moved = ranks[r]->run_lane(id) || moved;
      }
      moved = advance(r) || moved;
      if (scripts[r].threads == 1) continue;
      for (std::size_t thread = 0; thread < scripts[r].threads; ++thread) {
        moved = advance_thread(r, thread, true) || moved;
      }
    }
    return moved;
  }

  bool advance_clock() {
    Deadline due = Deadline::never();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (places_[r].dead) continue;
      due = due.sooner(ranks[r]->negotiator.next_due());
      for (auto& [id, lane] : ranks[r]->lanes) due = due.sooner(lane->table.look(now_));
    }
    if (due == Deadline::never()) return false;
    now_ = std::max(now_ + std::chrono::microseconds(1), due.when());
    return true;
  }

  const Sets sets_;
  channel::Hub hub_;
  std::mt19937_64 random_;
  TimePoint now_{std::chrono::seconds(1000)};
  std::vector<int> node_of_;                      // by rank
  std::vector<MakeAnnouncements> announcements_;  // by set
  std::vector<Place> places_;
  std::size_t turn_ = 0;
};

}  // namespace roundelay::sim
