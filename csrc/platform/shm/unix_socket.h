// Sockets between processes of one node that can carry descriptors. Their addresses are abstract: they need
// no file, disappear with their process, and are visible only in one network namespace.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "platform/fd.h"

namespace roundelay::platform {

// A packet, and the descriptor that came with it, if any.
struct Packet {
  Bytes bytes;
  Fd fd;
};

// A connection to a process of the same user. The caller refuses another user with an error; the listener
// drops such a connection.
class UnixSocket {
 public:
  static constexpr std::size_t kLongestPacket = 4096;

  // Connects to a listener. Returns nothing if too many callers wait there. Errors: kUnavailable (nobody
  // listens at the address), kAborted (another user does).
  static Result<std::optional<UnixSocket>> try_connect(const std::string& address);
  // The same, and waits for room up to the deadline: strangers may fill the queue. Errors: kUnavailable also
  // then.
  static Result<UnixSocket> connect(const std::string& address, Deadline deadline);

  // Sends one packet, with a copy of `fd` unless it is null. Does not wait: packets are few and small.
  // Errors: kUnavailable.
  [[nodiscard]] Status send(ConstByteSpan bytes, const Fd* fd = nullptr) const;
  // Receives the next packet. Errors: kUnavailable (the peer closed the connection, or the deadline passed).
  [[nodiscard]] Result<Packet> receive(Deadline deadline) const;
  // Returns the listening process, on the side that connected; 0 if it is in another process namespace.
  [[nodiscard]] pid_t process() const;

 private:
  friend class UnixListener;
  explicit UnixSocket(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// Accepts connections at one address. One thread at a time.
class UnixListener {
 public:
  static Result<UnixListener> open();  // listens at a random address; errors: kUnavailable
  [[nodiscard]] const std::string& address() const { return address_; }
  // Returns the next connection; nothing at the deadline. Errors: kUnavailable.
  [[nodiscard]] Result<std::optional<UnixSocket>> accept(Deadline deadline) const;

 private:
  UnixListener(Fd fd, std::string address) : fd_(std::move(fd)), address_(std::move(address)) {}
  Fd fd_;
  std::string address_;
};

}  // namespace roundelay::platform
