// Non-blocking TCP sockets: closed on exec, without Nagle's delay, without SIGPIPE.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/fd.h"
#include "platform/tcp/address.h"

namespace roundelay::platform {

// The result of one read or write.
struct Transfer {
  // kSome: `bytes` bytes moved. kWouldBlock: none can move now. kEnd: the peer has ended its output.
  enum class State : unsigned char { kSome, kWouldBlock, kEnd, kError };
  State state = State::kSome;
  std::size_t bytes = 0;  // set with kSome
  int error = 0;          // errno, for kError
};

// A connection. No call blocks.
class Socket {
 public:
  static constexpr std::size_t kMostParts = 32;

  explicit Socket(Fd fd) : fd_(std::move(fd)) {}

  // Starts to connect. The socket is writable when it has connected or failed; connect_error() tells which.
  // Errors: kUnavailable.
  static Result<Socket> start_connect(const Endpoint& to);
  [[nodiscard]] int connect_error() const;  // returns errno, or 0

  [[nodiscard]] Transfer read(ByteSpan into) const;
  [[nodiscard]] Transfer read(ByteSpan first, ByteSpan then) const;          // fills `first` before `then`
  [[nodiscard]] Transfer write(std::span<const ConstByteSpan> parts) const;  // takes at most kMostParts parts

  // Sets how the connection treats a peer whose receive window is closed, such as a stopped process. With
  // false (the default) such a peer fails the connection within 6 s, as an unreachable peer does. With true
  // it does not, and an unreachable peer fails an idle connection within 6 s, but one with pending output
  // only after minutes.
  void set_window_closed(bool closed) const;
  // Ends the output; the peer reads the end of input.
  void shutdown_output() const;
  // Returns how many bytes the peer's kernel has not acknowledged. The end of output counts as one.
  [[nodiscard]] int unacknowledged() const;
  // Returns whether output is pending and none of it is in transit: the peer's window is closed.
  [[nodiscard]] bool held_back() const;

  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  Fd fd_;
};

// Accepts connections. No call blocks.
class Listener {
 public:
  // Listens at all of these addresses, at one port that the system chooses; without any, on all interfaces,
  // for IPv6 too if there is any. Addresses that are not ready (an IPv6 address that the kernel still checks)
  // are left out. Errors: kUnavailable (none of them can be listened at).
  static Result<Listener> create(std::span<const Address> addresses = {});
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Returns the next connection; nothing if there is none now. Errors: kUnavailable (no descriptors or
  // memory).
  [[nodiscard]] Result<std::optional<Socket>> accept() const;
  [[nodiscard]] std::span<const Fd> fds() const { return fds_; }

 private:
  Listener(std::vector<Fd> fds, std::uint16_t port) : fds_(std::move(fds)), port_(port) {}
  std::vector<Fd> fds_;
  std::uint16_t port_;
};

}  // namespace roundelay::platform
