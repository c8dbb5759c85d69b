#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace roundelay {

void futex_wait(const FutexWord& word, std::uint32_t seen, Duration most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds.count());
  time.tv_nsec = static_cast<long>((most - seconds).count());
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wait(const FutexWord& word, std::uint32_t seen, Deadline deadline) {
  constexpr Duration kUntilWoken = std::chrono::hours(24);
  const TimePoint now = steady_now();
  const Duration most = deadline == Deadline::never() ? kUntilWoken : deadline.look(now) - now;
  if (most > Duration{0}) futex_wait(word, seen, most);
}

void futex_wake(const FutexWord& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace roundelay
