#include "process_group/monitored_barrier.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "process_group/errors.h"
#include "process_group/work.h"

namespace roundelay::process_group {
namespace {

using Kind = MessageLane::Message::Kind;

constexpr MessageLane::Tag kHere = 1U << 31, kGo = kHere + 1;  // users' tags are not negative

// A message of one byte, which outlives a barrier that has failed.
class Signal {
 public:
  Signal(MessageLane& lane, Kind kind, int peer, MessageLane::Tag tag) : state_(std::make_shared<State>()) {
    check(lane.post({.kind = kind,
                     .peer = peer,
                     .memory = ByteSpan(&state_->byte, 1),
                     .tag = tag,
                     .deadline = Deadline::never(),
                     .over = [state = state_](const Result<int>& outcome) {
                       state->outcome = outcome.status();
                       state->over = true;
                     }}));
  }
  [[nodiscard]] bool over() const { return state_->over; }
  // Returns why the message has failed; ok if it has not, or not yet.
  [[nodiscard]] Status outcome() const { return over() ? state_->outcome : Status{}; }

 private:
  struct State {
    std::byte byte{};
    Status outcome;  // is read when `over`
    std::atomic<bool> over{false};
  };
  std::shared_ptr<State> state_;
};

// Returns false at the deadline. Throws if a message has failed, as communication has for all members then.
bool wait_for(MessageLane& lane, const std::vector<Signal>& signals, Deadline deadline, int rank) {
  const auto done = [&] {
    return std::all_of(signals.begin(), signals.end(), [](const Signal& one) { return one.over(); });
  };
  const bool came = wait_in_steps(
      done, [&](Deadline until) { lane.drive(done, until); }, deadline);
  for (const Signal& signal : signals) {
    if (const Status why = signal.outcome(); !why.ok()) {
      check(Status::aborted("[Rank " + std::to_string(rank) +
                            "]: monitoredBarrier has failed: " + why.message()));
    }
  }
  return came;
}

// Returns "Rank 1", "Ranks 1, 2".
std::string names(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "Rank " : "Ranks ") + text;
}

void wait_for_all(MessageLane& lane, int size, std::chrono::milliseconds timeout, bool all) {
  if (timeout.count() <= 0) {
    check(Status::aborted("[Rank 0]: Rank 0 timed out in monitoredBarrier after " +
                          std::to_string(timeout.count()) + " ms, before any rank could reach it"));
  }
  std::vector<Signal> here;
  for (int peer = 1; peer < size; ++peer) here.emplace_back(lane, Kind::kReceive, peer, kHere);
  wait_for(lane, here, Deadline::after(timeout), 0);
  std::vector<int> late;
  for (int peer = 1; peer < size; ++peer) {
    if (!here[static_cast<std::size_t>(peer - 1)].over() && (all || late.empty())) late.push_back(peer);
  }
  if (!late.empty()) {
    check(Status::aborted("[Rank 0]: " + names(late) + " failed to pass monitoredBarrier in " +
                          std::to_string(timeout.count()) + " ms"));
  }
  std::vector<Signal> go;
  for (int peer = 1; peer < size; ++peer) go.emplace_back(lane, Kind::kSend, peer, kGo);
  wait_for(lane, go, Deadline::after(timeout), 0);
}

}  // namespace

void monitored_barrier(MessageLane& lane, int rank, int size, std::chrono::milliseconds timeout, bool all) {
  if (rank == 0) return wait_for_all(lane, size, timeout, all);
  const std::vector<Signal> signals{Signal(lane, Kind::kSend, 0, kHere),
                                    Signal(lane, Kind::kReceive, 0, kGo)};
  if (wait_for(lane, signals, Deadline::after(timeout), rank)) return;
  check(Status::aborted("[Rank " + std::to_string(rank) + "]: Rank " + std::to_string(rank) +
                        " successfully reached monitoredBarrier, but received errors while waiting for "
                        "send/recv from rank 0: no answer for " +
                        std::to_string(timeout.count()) + " ms; rank 0 names the rank that is late"));
}

}  // namespace roundelay::process_group
