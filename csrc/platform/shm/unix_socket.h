// Sockets between processes of one node that carry descriptors. Their addresses are abstract: they have no
// file, end with their process, and are seen only within a network namespace.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "platform/fd.h"

namespace roundelay::platform {

// A packet and the descriptor that came with it, if one did.
struct Packet {
  Bytes bytes;
  Fd fd;
};

// A connection to a process of the same user: others are refused.
class UnixSocket {
 public:
  static constexpr std::size_t kLongestPacket = 4096;

  // kUnavailable: nobody listens there within this network namespace, or another user does.
  static Result<UnixSocket> connect(const std::string& address);

  // Never blocks for long: packets are few and small. `fd` may be null.
  [[nodiscard]] Status send(ConstByteSpan bytes, const Fd* fd = nullptr) const;
  // kUnavailable: the peer closed the connection, or the deadline has passed.
  [[nodiscard]] Result<Packet> receive(Deadline deadline) const;
  // Of one that this process made: who listens at its other end; 0: a process that has no number here.
  [[nodiscard]] pid_t process() const;

 private:
  friend class UnixListener;
  explicit UnixSocket(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

class UnixListener {
 public:
  static Result<UnixListener> open();  // at an address that nobody can guess
  [[nodiscard]] const std::string& address() const { return address_; }
  // The next one who connects; nothing at the deadline.
  [[nodiscard]] Result<std::optional<UnixSocket>> accept(Deadline deadline) const;

 private:
  UnixListener(Fd fd, std::string address) : fd_(std::move(fd)), address_(std::move(address)) {}
  Fd fd_;
  std::string address_;
};

}  // namespace roundelay::platform
