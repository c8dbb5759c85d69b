#include "platform/tcp/epoll.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace roundelay::platform {
namespace {

epoll_event to_native(std::uint64_t tag, Epoll::Interest interest) {
  epoll_event event{};
  const bool reads = interest == Epoll::Interest::kRead || interest == Epoll::Interest::kReadWrite;
  const bool writes = interest == Epoll::Interest::kWrite || interest == Epoll::Interest::kReadWrite;
  event.events = (reads ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                 (writes ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  event.data.u64 = tag;
  return event;
}

// Waits with nanosecond precision if the kernel (5.11) can: deadlines may be closer than epoll_wait's
// milliseconds.
int precise_wait(int fd, epoll_event* events, int count, Deadline deadline) {
  const TimePoint now = steady_now();
#ifdef SYS_epoll_pwait2
  static std::atomic<bool> missing{false};
  if (!missing.load(std::memory_order_relaxed)) {
    const auto left = std::max<std::int64_t>((deadline.look(now) - now).count(), 0);
    struct {
      std::int64_t seconds;
      std::int64_t nanoseconds;
    } limit{left / 1'000'000'000, left % 1'000'000'000};
    const bool forever = deadline == Deadline::never();
    const long got =
        ::syscall(SYS_epoll_pwait2, fd, events, count, forever ? nullptr : &limit, nullptr, std::size_t{0});
    if (got >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(got);
    missing.store(true, std::memory_order_relaxed);
  }
#endif
  return ::epoll_wait(fd, events, count, deadline.poll_milliseconds(now));
}

}  // namespace

Result<Epoll> Epoll::create() {
  Fd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd.valid()) return errno_status("epoll_create1", errno);
  return Epoll(std::move(fd));
}

Status Epoll::add(const Fd& fd, std::uint64_t tag, Interest interest) {
  epoll_event event = to_native(tag, interest);
  if (::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return errno_status("epoll_ctl", errno);
  return {};
}

Status Epoll::change(const Fd& fd, std::uint64_t tag, Interest interest) {
  epoll_event event = to_native(tag, interest);
  if (::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd.get(), &event) != 0) return errno_status("epoll_ctl", errno);
  return {};
}

void Epoll::remove(const Fd& fd) { ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd.get(), nullptr); }

std::size_t Epoll::wait(std::span<Event> events, Deadline deadline) const {
  std::array<epoll_event, kMostEvents> native;
  const int room = static_cast<int>(std::min(events.size(), native.size()));
  const int got = precise_wait(fd_.get(), native.data(), room, deadline);
  const std::size_t count = got > 0 ? static_cast<std::size_t>(got) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = native[i].events;
    events[i] = {native[i].data.u64, (bits & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0,
                 (bits & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0};
  }
  return count;
}

Result<EventFd> EventFd::create() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return errno_status("eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::signal() const {
  const std::uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void EventFd::drain() const {
  std::uint64_t count = 0;
  while (::read(fd_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace roundelay::platform
