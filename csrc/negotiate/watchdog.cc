#include "negotiate/watchdog.h"

#include <algorithm>

namespace roundelay::negotiate {

bool Watchdog::on_stuck(int from, const wire::Stuck& stuck, TimePoint now) {
  stuck_.push_back(stuck);
  stuck_ranks_.push_back(from);
  on_sign_of_life(from);
  if (due_ != Deadline::never()) return false;
  if (is_arbiter()) on_sign_of_life(rank_);
  due_ = Deadline::at(now + (is_arbiter() ? kLivenessCheckTime : kArbiterTimeout));
  return is_arbiter();
}

void Watchdog::on_sign_of_life(int from) {
  const auto member = std::lower_bound(members_.begin(), members_.end(), from);
  if (member == members_.end() || *member != from) return;
  answered_[static_cast<std::size_t>(member - members_.begin())] = true;
}

std::optional<wire::Abort> Watchdog::take_fault(TimePoint now) {
  if (due_ == Deadline::never()) return std::nullopt;
  const bool all = is_arbiter() && std::all_of(answered_.begin(), answered_.end(), [](bool a) { return a; });
  // When all members live, their own reports are worth waiting for: they tell which rank waits for which.
  if (!due_.passed(now) && !(all && stuck_ranks_.size() >= answered_.size())) return std::nullopt;
  due_ = Deadline::never();
  return blame();
}

wire::Abort Watchdog::blame() const {
  wire::Abort abort;
  const std::string& what = stuck_.front().text;
  if (!is_arbiter() && !closed_) {
    abort.culprit = members_.front();
    abort.text = "rank " + std::to_string(abort.culprit) + " entered " + what +
                 " and then stopped: it answers no message";
    return abort;
  }
  const auto silent = std::find(answered_.begin(), answered_.end(), false);
  if (silent != answered_.end() && !closed_) {
    abort.culprit = members_[static_cast<std::size_t>(silent - answered_.begin())];
    abort.text =
        "rank " + std::to_string(abort.culprit) + " entered " + what +
        " and then stopped: it answers no message (stopped or overloaded process, or lost connection)";
    return abort;
  }
  // All live, but none moves: the culprit is a rank that others wait for and that waits for no other.
  for (const wire::Stuck& stuck : stuck_) {
    const bool waits_itself =
        std::find(stuck_ranks_.begin(), stuck_ranks_.end(), stuck.waiting_for) != stuck_ranks_.end();
    if (stuck.waiting_for >= 0 && !waits_itself) abort.culprit = stuck.waiting_for;
  }
  abort.text =
      abort.culprit >= 0
          ? "rank " + std::to_string(abort.culprit) + " made no progress inside " + what
          : "no rank made progress inside " + what + (closed_ ? "" : ", though all of them are alive");
  return abort;
}

}  // namespace roundelay::negotiate
