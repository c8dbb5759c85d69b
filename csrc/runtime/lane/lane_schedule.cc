// A lane under a schedule lock: who takes the operations that all ranks have announced, and who sleeps until
// there is one.
#include <utility>

#include "runtime/lane/lane.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kUntilWoken = std::chrono::hours(24);

}  // namespace

void Lane::begin_schedule(std::uint64_t sequence) {
  {
    MutexLock lock(entering_);
    schedule_ = sequence;
  }
  wake();  // the lane's thread sleeps elsewhere from now on
}

// All ranks enter the positions before `from`, some of them only now.
void Lane::end_schedule(std::uint64_t from) {
  {
    MutexLock lock(entering_);
    while (auto names = table_.enter_before(from)) run_scheduled(std::move(*names));
    table_.end_schedule();
  }
  wake();
}

bool Lane::enter() {
  if (!table_.scheduled()) return false;
  bool entered = false;
  MutexLock lock(entering_);
  while (auto names = table_.enter()) {
    run_scheduled(std::move(*names));
    entered = true;
  }
  // Callers that wait for it negotiate by now, asleep in the channel.
  if (entered && !goes_by_schedule()) faults_.news();
  return entered;
}

void Lane::run_scheduled(std::vector<std::string> names) {
  ++counters_.locked_operations;
  negotiate::Execution execution;
  execution.names = std::move(names);
  enqueue(schedule_, execution);
}

void Lane::wait_for_announcements(Deadline deadline) {
  constexpr auto kWho = Announcements::Sleeper::kBackground;
  const std::uint32_t seen = announcements_->arm(kWho);
  {
    MutexLock lock(mutex_);
    if (std::exchange(woken_, false)) return;
  }
  if (has_work() || may_enter() || !table_.scheduled()) return;
  const auto look_again = look_after_schedule();
  if (!look_again) return;
  const Deadline next = look_again->sooner(deadline);
  const Duration most = next == Deadline::never() ? kUntilWoken : next.when() - steady_now();
  if (most > Duration{0}) futex_wait(announcements_->doorbell(kWho), seen, most);
}

// When to look again; nothing: what waits here has waited for too long, and the lock is to end. By whoever is
// about to sleep: the lane's thread may be kept from looking by a driver that does not leave.
std::optional<Deadline> Lane::look_after_schedule() {
  const bool open = goes_by_schedule();
  const Deadline next = table_.look(steady_now());
  if (!open || goes_by_schedule()) return next;
  faults_.news();
  return std::nullopt;
}

// What was announced meanwhile woke nobody.
void Lane::mind_schedule() {
  if (!announcements_ || !table_.scheduled()) return;
  announcements_->spare_background(false);
  if (may_enter()) wake();
}

}  // namespace roundelay::runtime
