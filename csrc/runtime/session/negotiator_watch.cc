// Who is late or silent, and what can be said about it.
#include "base/log.h"
#include "runtime/session/negotiator.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(2500);  // with a late rank's answer

}  // namespace

void Negotiator::watch_coordinators(TimePoint now) {
  for (auto& [id, lane] : lanes_) {
    const int coordinator = awaited_by(lane);
    if (coordinator == rank_ || lane.closed) continue;
    const bool waiting = lane.coordinator ? lane.orders.waiting() : lane.waits();
    const auto action = lane.watch.check(waiting, now);
    if (action == negotiate::CoordinatorWatch::Action::kNothing) continue;
    if (action == negotiate::CoordinatorWatch::Action::kPing) {
      send(coordinator, wire::Ping{0, nanoseconds(now)});
      continue;
    }
    const auto silence = std::chrono::duration_cast<std::chrono::seconds>(lane.watch.silence(now));
    std::string text = "rank " + std::to_string(coordinator) +
                       ", which coordinates, has answered nothing for " + std::to_string(silence.count()) +
                       " s while other ranks wait: stopped, overloaded or unreachable";
    if (action == negotiate::CoordinatorWatch::Action::kWarn) {
      const std::string account = neighbours_.account(coordinator);
      if (!account.empty()) text.append("; ").append(account);
      log(LogLevel::kWarning, text);
    } else {
      abort({coordinator, text}, rank_);
    }
  }
}

// A stopped process is seen long before its absence is worth a warning.
void Negotiator::watch_neighbours(TimePoint now) {
  if (neighbours_.empty() || options_.stall_warning == Duration{0}) return;
  for (auto& [id, lane] : lanes_) {
    if (!lane.neighbour_watch.check(!lane.closed && lane.waits(), now)) continue;
    for (const std::string& line : neighbours_.look(lane.group)) log(LogLevel::kWarning, line);
  }
}

void Negotiator::warn_of_the_late(negotiate::Coordinator& coordinator, TimePoint now) {
  for (const std::string& line : coordinator.take_stall_warnings(now)) log(LogLevel::kWarning, line);
  for (const int rank : coordinator.take_late_ranks()) ask_for_state(rank, now);
}

// The rank knows best; who cannot answer is seen from outside.
void Negotiator::ask_for_state(int rank, TimePoint now) {
  if (!asked_.emplace(rank, Deadline::at(now + kPatience)).second) return;
  if (rank == rank_) {
    sink_.state_asked(rank_);
  } else {
    send(rank, wire::StateQuestion{});
  }
}

void Negotiator::on_state(int from, const std::string& text) {
  if (asked_.erase(from) > 0) log(LogLevel::kWarning, "rank " + std::to_string(from) + ": " + text);
}

void Negotiator::give_up_asking(TimePoint now) {
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

void Negotiator::on_stuck(int from, const wire::Stuck& stuck, TimePoint now) {
  const auto found = lanes_.find(stuck.lane);
  if (aborted_ || found == lanes_.end()) return;
  Lane& lane = found->second;
  const int arbiter = lane.group.ranks.front();
  if (from == rank_ && rank_ != arbiter) send(arbiter, stuck);
  if (!lane.watchdog.on_stuck(from, stuck, now)) return;
  for (const int rank : lane.group.ranks) {
    if (rank != rank_) send(rank, wire::Ping{0, nanoseconds(now)});
  }
}

bool Negotiator::check_watchdogs(TimePoint now) {
  for (auto& [id, lane] : lanes_) {
    const auto fault = lane.watchdog.take_fault(now);
    if (!fault) continue;
    abort(*fault, rank_);
    return true;
  }
  return false;
}

}  // namespace roundelay::runtime
