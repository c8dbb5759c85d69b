// Waiting for descriptors: epoll(7), level-triggered, and eventfd(2) to end a wait from another thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "platform/fd.h"

namespace roundelay::platform {

class Epoll {
 public:
  struct Event {
    std::uint64_t tag = 0;
    bool readable = false;  // also at the end of input and on errors: read to learn which
    bool writable = false;
  };
  enum class Interest : unsigned char { kNone, kRead, kWrite, kReadWrite };
  static constexpr std::size_t kMostEvents = 64;

  static Result<Epoll> create();

  Status add(const Fd& fd, std::uint64_t tag, Interest interest);
  Status change(const Fd& fd, std::uint64_t tag, Interest interest);

  // Thread-safe, also beside add and change. How many events were stored; 0 at the deadline or on a signal.
  std::size_t wait(std::span<Event> events, Deadline deadline) const;

 private:
  explicit Epoll(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// Thread-safe.
class EventFd {
 public:
  static Result<EventFd> create();
  void signal() const;  // makes it readable
  void drain() const;   // until now
  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace roundelay::platform
