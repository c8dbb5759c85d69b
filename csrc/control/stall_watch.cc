#include "control/stall_watch.h"

#include "base/log.h"

namespace roundelay::control {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::milliseconds(2500);

}  // namespace

void StallWatch::on_heard(int from, TimePoint now) {
  for (auto& [id, lane] : lanes_) {
    if (lane.awaited_rank() == from) lane.watch.on_heard(now);
  }
}

bool StallWatch::check(TimePoint now) {
  check_coordinators(now);
  check_neighbours(now);
  give_up_asking(now);
  return take_faults(now);
}

Deadline StallWatch::next_due() const {
  Deadline due = Deadline::never();
  for (const auto& [rank, until] : asked_) due = due.sooner(until);
  for (const auto& [id, lane] : lanes_) {
    due = due.sooner(lane.watchdog.next_due());
    if (lane.closed) continue;
    due = due.sooner(lane.watch.next_due());
    due = due.sooner(lane.neighbour_watch.next_due());
  }
  return due;
}

void StallWatch::check_coordinators(TimePoint now) {
  using Action = negotiate::CoordinatorWatch::Action;
  for (auto& [id, lane] : lanes_) {
    const int coordinator = lane.awaited_rank();
    if (coordinator == link_.rank() || lane.closed) continue;
    const bool waiting = lane.coordinator ? lane.orders.waiting() : lane.waits();
    const Action action = lane.watch.check(waiting, now);
    if (action == Action::kPing) link_.send(coordinator, wire::Ping{0, nanoseconds(now)});
    if (action == Action::kWarn || action == Action::kAbort) {
      on_silent_coordinator(lane, action == Action::kAbort, now);
    }
  }
}

void StallWatch::on_silent_coordinator(const LaneControl& lane, bool fatal, TimePoint now) {
  const int coordinator = lane.awaited_rank();
  const bool leads = !lane.coordinator && coordinator != lane.group.ranks.front();
  std::string text = "rank " + std::to_string(coordinator) + (leads ? ", a leader" : ", which coordinates") +
                     ", has answered nothing for " + seconds_text(lane.watch.silence(now)) +
                     " while other ranks wait: stopped, overloaded or unreachable";
  if (fatal) return link_.abort({coordinator, text});
  const std::string account = neighbours_.account(coordinator);
  if (!account.empty()) text.append("; ").append(account);
  log(LogLevel::kWarning, text);
}

// The kernel shows a stopped process long before its absence is worth a warning.
void StallWatch::check_neighbours(TimePoint now) {
  if (neighbours_.empty() || !warns_) return;
  for (auto& [id, lane] : lanes_) {
    if (!lane.neighbour_watch.check(!lane.closed && lane.waits(), now)) continue;
    for (const std::string& line : neighbours_.look(lane.group)) log(LogLevel::kWarning, line);
  }
}

void StallWatch::warn_of_late_ranks(negotiate::Coordinator& coordinator, TimePoint now) {
  for (const std::string& line : coordinator.take_stall_warnings(now)) log(LogLevel::kWarning, line);
  for (const int rank : coordinator.take_late_ranks()) ask_about(rank, now);
}

void StallWatch::ask_about(int rank, TimePoint now) {
  if (!asked_.emplace(rank, Deadline::at(now + kAnswerTimeout)).second) return;
  if (rank == link_.rank()) {
    sink_.state_asked(rank);
  } else {
    link_.send(rank, wire::StateQuestion{});
  }
}

void StallWatch::on_state(int from, const std::string& text) {
  if (asked_.erase(from) > 0) log(LogLevel::kWarning, "rank " + std::to_string(from) + ": " + text);
}

// Logs what the kernel shows of ranks that do not answer.
void StallWatch::give_up_asking(TimePoint now) {
  for (auto asked = asked_.begin(); asked != asked_.end();) {
    const auto& [rank, until] = *asked;
    if (!until.passed(now)) {
      ++asked;
      continue;
    }
    const std::string seen = neighbours_.account(rank);
    const std::string silent = "it does not say what it does: stopped, overloaded or unreachable";
    log(LogLevel::kWarning, "rank " + std::to_string(rank) + ": " + (seen.empty() ? silent : seen));
    asked = asked_.erase(asked);
  }
}

void StallWatch::on_stuck(int from, const wire::Stuck& stuck, TimePoint now) {
  LaneControl* const lane = lanes_.find(stuck.lane);
  if (link_.aborted() || lane == nullptr) return;
  const int arbiter = lane->group.ranks.front();
  if (from == link_.rank() && from != arbiter) link_.send(arbiter, stuck);
  if (!lane->watchdog.on_stuck(from, stuck, now)) return;
  for (const int rank : lane->group.ranks) {
    if (rank != link_.rank()) link_.send(rank, wire::Ping{0, nanoseconds(now)});
  }
}

void StallWatch::on_sign_of_life(int from) {
  for (auto& [id, lane] : lanes_) lane.watchdog.on_sign_of_life(from);
}

bool StallWatch::take_faults(TimePoint now) {
  for (auto& [id, lane] : lanes_) {
    const auto fault = lane.watchdog.take_fault(now);
    if (!fault) continue;
    link_.abort(*fault);
    return true;
  }
  return false;
}

}  // namespace roundelay::control
