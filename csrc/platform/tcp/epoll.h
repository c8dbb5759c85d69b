// Waits for descriptors with epoll(7), level-triggered; an eventfd(2) ends a wait from another thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "platform/fd.h"

namespace roundelay::platform {

class Epoll {
 public:
  // A descriptor that is ready. `tag` is the number given to add() or change().
  struct Event {
    std::uint64_t tag = 0;
    bool readable = false;  // true also at the end of input and after errors; read() tells which
    bool writable = false;
  };
  enum class Interest : unsigned char { kNone, kRead, kWrite, kReadWrite };
  static constexpr std::size_t kMostEvents = 64;  // most events that one wait() stores

  static Result<Epoll> create();

  // Start or change the watch of a descriptor. It ends when the descriptor is closed. Errors: kUnavailable.
  Status add(const Fd& fd, std::uint64_t tag, Interest interest);
  Status change(const Fd& fd, std::uint64_t tag, Interest interest);
  // Ends the watch of a descriptor that stays open.
  void remove(const Fd& fd);

  // Waits for events, stores them, and returns how many; 0 at the deadline or after a signal. Any thread may
  // call it, also while others add and change.
  std::size_t wait(std::span<Event> events, Deadline deadline) const;
  // Returns a descriptor that is readable while wait() would return events.
  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  explicit Epoll(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// A descriptor that is readable while it is signalled. Thread-safe.
class EventFd {
 public:
  static Result<EventFd> create();
  void signal() const;  // makes it readable
  void drain() const;   // makes it unreadable
  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace roundelay::platform
