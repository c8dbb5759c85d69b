// Non-blocking TCP sockets: closed on exec, no delay, never a SIGPIPE.
#pragma once

#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/fd.h"
#include "platform/tcp/address.h"

namespace roundelay::platform {

// What one read or write did.
struct Transfer {
  enum class State : unsigned char { kSome, kWouldBlock, kEnd, kError };
  State state = State::kSome;
  std::size_t bytes = 0;  // of kSome
  int error = 0;          // errno of kError
};

class Socket {
 public:
  static constexpr std::size_t kMostParts = 32;

  explicit Socket(Fd fd) : fd_(std::move(fd)) {}

  // Starts to connect: writable when connected or failed, connect_error() says which.
  static Result<Socket> start_connect(const Endpoint& to);
  [[nodiscard]] int connect_error() const;  // errno or 0

  [[nodiscard]] Transfer read(ByteSpan into) const;
  [[nodiscard]] Transfer write(std::span<const ConstByteSpan> parts) const;  // kMostParts at most

  // An unreachable peer fails the connection within 6 s: always when the connection is idle or output is on
  // its way. A peer whose window stays closed, as that of a stopped process does, fails it too, unless this
  // was called (then an unreachable one does after minutes).
  void set_window_closed(bool closed) const;
  void shutdown_output() const;
  // Bytes, the end included, that the peer's kernel has not acknowledged.
  [[nodiscard]] int unacknowledged() const;
  // There is output, and none of it is on its way: the peer's window is closed.
  [[nodiscard]] bool held_back() const;

  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  Fd fd_;
};

class Listener {
 public:
  // On all interfaces, IPv6 too where there is any; the system chooses the port.
  static Result<Listener> create();
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Empty: nobody is there now. Errors: out of descriptors or memory.
  [[nodiscard]] Result<std::optional<Socket>> accept() const;
  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  Listener(Fd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}
  Fd fd_;
  std::uint16_t port_;
};

}  // namespace roundelay::platform
