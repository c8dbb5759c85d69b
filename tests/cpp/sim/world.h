// N ranks in one thread: their negotiators over the inproc channel, a fake clock, and a seed that decides
// everything.
//
// Each rank follows a script of uses of names. The scheduler picks at random who submits, steps or receives
// next, so that one seed is one schedule, and a failing one can be run again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "channel/inproc/hub.h"
#include "complete/completer.h"
#include "runtime/negotiator.h"
#include "submit/table.h"

namespace roundelay::sim {

struct Use {
  std::string name;
  std::vector<std::int64_t> shape{4};
  DType dtype = DType::kFloat32;
  std::string local_error;     // not empty: this rank's checks fail
  bool may_duplicate = false;  // may be called while the use before it is in flight
};

struct Script {
  std::vector<Use> uses;
  std::size_t stop_at = SIZE_MAX;  // falls silent (but keeps stepping) before this use
};

// How one use of a name ended on one rank.
struct Outcome {
  bool local = false;  // refused by this rank's own checks: the caller saw it at once
  Status status;
};

class Rank final : public runtime::NegotiationSink {
 public:
  Rank(int rank, int size, std::unique_ptr<channel::Channel> channel, negotiate::CoordinatorOptions options)
      : channel_(std::move(channel)),
        completer_(handles_, [](const submit::Entry&) {}),
        negotiator(*channel_, rank, size, options, *this) {
    Group world{0, {}, rank};
    for (int r = 0; r < size; ++r) world.ranks.push_back(r);
    negotiator.add_lane(LaneId{}, world, table);
  }

  // One use of the script; false if it has to wait because its name is in flight.
  bool submit(const Use& use, bool duplicate) {
    const bool busy = in_flight_.contains(use.name);
    if (busy && !(use.may_duplicate && duplicate)) return false;
    submit::Entry entry;
    entry.request.name = use.name;
    entry.request.shape = use.shape;
    entry.request.dtype = use.dtype;
    if (!use.local_error.empty() && !busy) {
      entry.request.error = use.local_error;
      table.add_error(entry.request);
      outcomes[use.name].push_back({true, Status::invalid(use.local_error)});
      return true;
    }
    auto handle = table.add(std::move(entry), handles_);
    if (handle.ok()) {
      in_flight_[use.name] = *handle;
      outcomes[use.name].push_back({});
      ++submitted;
    } else if (!aborted.ok()) {
      ++refused_after_abort;
    } else {
      pending_errors_[use.name].push_back({true, handle.status()});
    }
    return true;
  }

  // The lane's part: the oldest ordered operation completes.
  bool run_lane() {
    if (queue_.empty()) return false;
    for (const std::string& name : queue_.front()) finish(name, Status{});
    executed.push_back(std::move(queue_.front()));
    queue_.pop_front();
    return true;
  }

  [[nodiscard]] bool quiet() const { return queue_.empty() && !table.anything_queued(); }

  submit::TensorTable table;
  std::vector<std::vector<std::string>> executed;
  std::map<std::string, std::vector<Outcome>> outcomes;  // by name, in order of use
  int submitted = 0;
  int completed = 0;
  int completed_twice = 0;
  int refused_after_abort = 0;
  Status aborted;

 private:
  void finish(const std::string& name, Status status) {
    if (!completer_.complete(table, name, status)) ++completed_twice;
    record(name, std::move(status));
  }
  void record(const std::string& name, Status status) {
    ++completed;
    auto& list = outcomes[name];
    list.back().status = std::move(status);
    in_flight_.erase(name);
    for (Outcome& late : pending_errors_[name]) list.push_back(std::move(late));
    pending_errors_.erase(name);
  }
  void execute(LaneId, std::uint64_t, std::vector<std::string> names) override {
    queue_.push_back(std::move(names));
  }
  void settle(LaneId, const std::string& name, Status status) override { finish(name, std::move(status)); }
  void shut_down(LaneId, int by_rank) override { shut_down_by = by_rank; }
  void abort(const Status& cause) override {
    aborted = cause;
    queue_.clear();
    completer_.fail_all(table, cause);
    const auto all = in_flight_;
    for (const auto& [name, handle] : all) {
      if (!handles_.done(handle).value_or(true)) ++completed_twice;
      record(name, cause);
    }
  }
  void ready(LaneId, const negotiate::ReadyNote&) override {}
  void clock_offset(std::int64_t) override {}
  void timeline_chunk(wire::TimelineChunk) override {}
  void timeline_switch(wire::TimelineSwitch) override {}

  submit::HandleTable handles_;
  std::unique_ptr<channel::Channel> channel_;
  complete::Completer completer_;
  std::map<std::string, submit::Handle> in_flight_;
  std::map<std::string, std::vector<Outcome>>
      pending_errors_;  // refused duplicates, behind the use in flight
  std::deque<std::vector<std::string>> queue_;

 public:
  runtime::Negotiator negotiator;
  int shut_down_by = -1;
};

class World {
 public:
  World(std::uint64_t seed, int size, negotiate::CoordinatorOptions options)
      : hub_(size, channel::Delivery::kByHand), random_(seed) {
    for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<Rank>(r, size, hub_.channel(r), options));
    position_.assign(ranks.size(), 0);
    dead_.assign(ranks.size(), false);
  }

  void kill(int rank) {
    dead_[static_cast<std::size_t>(rank)] = true;
    hub_.disconnect(rank);
  }

  // Runs until nothing can happen any more. Returns false if that takes longer than any schedule should.
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
  // Called before each random turn: faults are injected here.
  std::function<void(World&, std::size_t turn)> inject;

 private:
  bool submit_next(std::size_t r, const std::vector<Script>& scripts) {
    const Script& script = scripts[r];
    if (dead_[r] || position_[r] >= std::min(script.uses.size(), script.stop_at)) return false;
    if (!ranks[r]->submit(script.uses[position_[r]], pick(2) == 0)) return false;
    ++position_[r];
    if (pick(4) == 0) ranks[r]->negotiator.request_flush();
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
    switch (pick(5)) {
      case 0:
      case 1:
        return submit_next(r, scripts);
      case 2:
        return deliver_one();
      case 3:
        return !dead_[r] && ranks[r]->run_lane();
      default:
        return !dead_[r] && ranks[r]->negotiator.step(now_);  // also wake-ups for nothing
    }
  }

  // Nothing moved at random: give everyone one turn of everything.
  bool settle_everyone(const std::vector<Script>& scripts) {
    bool moved = deliver_one();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (dead_[r]) continue;
      moved = ranks[r]->negotiator.step(now_) || moved;
      moved = ranks[r]->run_lane() || moved;
      moved = submit_next(r, scripts) || moved;
    }
    return moved;
  }

  bool advance_clock() {
    Deadline due = Deadline::never();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!dead_[r]) due = due.sooner(ranks[r]->negotiator.next_due());
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
  std::size_t turn_ = 0;
};

}  // namespace roundelay::sim
