// The TCP connections of one rank under their epoll tags, and the listener that accepts new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/status.h"
#include "connect/greeting.h"
#include "platform/tcp/epoll.h"
#include "platform/tcp/socket.h"
#include "wire/frames.h"

namespace roundelay::connect {

struct Connection {
  enum class State : unsigned char {
    kDialling,  // this rank connects; TCP is not connected yet
    kOpening,   // TCP is connected; the acceptor waits for the opening, the dialler for the answer
    kGreeting,  // the peer's greeting has not arrived
    kParked,  // made by a higher rank, whose greeting has arrived; unused while this rank's own attempt runs
    kOpen,    // established: it carries messages
  };
  std::uint64_t id;
  platform::Socket socket;
  State state;
  int peer;                  // -1: unknown
  std::uint64_t stream = 0;  // what it is for, as the dialler's Hello says
  Handshake handshake{};
  wire::FrameReader reader{kLongestGreeting};
  bool watches_output = false;  // epoll reports when the socket takes output
  bool window_closed = false;   // the peer's receive window, as check_windows() saw it last
};

// One thread at a time may use it.
class ConnectionTable {
 public:
  static constexpr std::uint64_t kListenerTag = 1, kFirstTag = 2;  // connections have tags from kFirstTag on

  // `epoll` outlives the table. `ranks`: the number of ranks that may connect.
  ConnectionTable(platform::Epoll& epoll, platform::Listener listener, std::size_t ranks)
      : epoll_(epoll), listener_(std::move(listener)), ranks_(ranks) {}
  // Watches the listener. Call it first. Errors: kUnavailable.
  Status listen();

  // Takes a socket and watches it: for output while it dials, else for input. Returns null if epoll refuses.
  Connection* add(platform::Socket socket, Connection::State state, int peer);
  // Returns the connection with this tag; null if it is closed.
  [[nodiscard]] Connection* find(std::uint64_t id) const;
  // Closes a connection. Its descriptor is free again, so a muted listener accepts again.
  void drop(Connection& connection);
  // Ends the watch of a connection and returns its socket.
  platform::Socket take(Connection& connection);
  // Closes and counts a connection of somebody who does not belong to the job.
  void refuse(Connection& connection);
  // Accepts all connections that wait at the listener. If more are without a greeting than all ranks could
  // have made, closes the oldest of them.
  void accept_all();
  // Closes the connections that have been without a greeting for too long. Call it when due() has passed.
  void drop_silent();

  // Watches a connection for input, after it has dialled. Returns false if epoll refuses.
  [[nodiscard]] bool watch_input(const Connection& connection);
  // Writes what the socket takes of the queue. If the socket is full, epoll reports when it takes more.
  platform::Transfer write(Connection& connection, wire::SendQueue& queue);
  // Writes one message at once. Returns the number of bytes that the socket has taken of its frame: 0 also
  // after an error, which the next write() reports.
  std::size_t write_frame(Connection& connection, ConstByteSpan message);

  // Returns when check_windows() or drop_silent() is due next.
  [[nodiscard]] Deadline due() const;

  // check_windows() keeps the connections to stopped processes: such a process reads nothing, and its kernel
  // closes the receive window but still answers (Socket::set_window_closed()). No event tells that a window
  // is closed, so the caller has to call it when windows_due() has passed: never() while there is no output.
  [[nodiscard]] Deadline windows_due() const { return windows_due_; }
  void check_windows();

  // Ends the output of all established connections.
  void shutdown_output();
  // Returns whether the peers' kernels have acknowledged all output of established connections.
  [[nodiscard]] bool all_acknowledged() const;
  // Closes all connections and the listener.
  void clear();

 private:
  void forget_greeted();
  [[nodiscard]] bool watch_listener(platform::Epoll::Interest interest);
  void drop_oldest(const char* why);
  void has_written();

  platform::Epoll& epoll_;
  std::optional<platform::Listener> listener_;
  const std::size_t ranks_;
  bool listener_muted_ = false;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  // Accepted connections without a greeting, oldest first; may contain ids of closed ones.
  struct Stranger {
    std::uint64_t id;
    Deadline until;
  };
  std::deque<Stranger> strangers_;
  std::uint64_t next_id_ = kFirstTag;
  Deadline windows_due_ = Deadline::never();
};

}  // namespace roundelay::connect
