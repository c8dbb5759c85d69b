// The control plane over TCP: one connection between any two ranks that talk, made when it is first needed.
//
// Connecting. A rank that has a message connects to the other (dials) and sends a greeting; the other checks
// it and sends its own. Messages follow only after that, so a connection that is given up has carried none.
// When two ranks dial each other at once, the lower rank's connection is kept. The higher rank drops its own
// when the lower rank's greeting arrives. The lower rank parks the higher rank's connection and uses it only
// if its own attempt fails.
//
// Loss. If an established connection ends or fails, that peer is lost forever, unless it said goodbye: then
// it has left in order. Connections of strangers are closed silently.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "base/group.h"
#include "channel/channel.h"
#include "channel/frames.h"
#include "channel/tcp/greeting.h"
#include "channel/tcp/tcp_address.h"
#include "platform/tcp/epoll.h"

namespace roundelay::channel {

class TcpChannel final : public Channel {
 public:
  // Makes a channel. `identity` is this rank's Hello, rank included; `tcp_addresses` are
  // TcpListener::address_bytes() of all ranks, by world rank. Errors: kInternal (a TCP address is
  // unreadable), kUnavailable (out of descriptors).
  static Result<std::unique_ptr<TcpChannel>> create(const Group& world, wire::Hello identity,
                                                    std::span<const Bytes> tcp_addresses,
                                                    TcpListener listener);
  ~TcpChannel() override;

  // Waits until the connection to `peer` is established; its loss is noticed from then on. Ranks connect to
  // rank 0 at init. Errors: kAborted (`peer` is lost, which receive() reports too, or has left, or the
  // deadline passed), kUnavailable (closed).
  Status connect(int peer, Deadline deadline) EXCLUDES(mutex_);

  Status send(int to, ConstByteSpan message) override EXCLUDES(mutex_);
  std::optional<Incoming> receive() override EXCLUDES(mutex_);
  void wait(Deadline deadline) override EXCLUDES(mutex_);
  void wake() override EXCLUDES(mutex_);
  void close(Deadline deadline) override EXCLUDES(mutex_);

 private:
  using Events = std::span<const platform::Epoll::Event>;
  static constexpr std::uint64_t kWakerTag = 0, kListenerTag = 1;  // epoll tags; connections use their ids

  enum class Stage : unsigned char {
    kDialling,  // this rank connects; TCP is not connected yet
    kGreeting,  // TCP is connected; the peer's greeting has not arrived
    kParked,    // a higher rank's connection with its greeting, while this rank's own attempt runs
    kOpen,      // established
  };
  struct Connection {
    std::uint64_t id;
    platform::Socket socket;
    Stage stage;
    int peer;  // -1: unknown
    FrameReader reader{kLongestGreeting};
    bool watches_output = false;
    bool window_closed = false;
  };
  enum class PeerState : unsigned char { kIdle, kDialling, kOpen, kLost, kLeft };
  struct Peer {
    PeerState state = PeerState::kIdle;
    Token token{};
    std::string host;
    std::vector<platform::Endpoint> endpoints;
    std::size_t next_endpoint = 0;
    std::string last_failure;
    Connection* connection = nullptr;  // this rank's attempt, or the established connection
    Connection* parked = nullptr;
    SendQueue queue;
    Status lost;
  };

  TcpChannel(int rank, wire::Hello identity, TcpListener listener, platform::Epoll epoll,
             platform::EventFd waker);

  // Making and ending connections (handshake.cc)
  void dial(int peer_rank) REQUIRES(mutex_);
  void dial_failed(Connection& connection, const std::string& why) REQUIRES(mutex_);
  void dialled(Connection& connection) REQUIRES(mutex_);
  void accept_all() REQUIRES(mutex_);
  void limit_strangers() REQUIRES(mutex_);
  void greeted(Connection& connection, ConstByteSpan bytes) REQUIRES(mutex_);
  void greeted_by_acceptor(Connection& connection, const std::optional<Greeting>& greeting) REQUIRES(mutex_);
  void greeted_by_dialler(Connection& connection, const Greeting& greeting) REQUIRES(mutex_);
  Status check_identity(const Greeting& greeting) const;
  bool send_greeting(Connection& connection) REQUIRES(mutex_);
  void stand(Connection& connection) REQUIRES(mutex_);
  Connection* add(platform::Socket socket, Stage stage, int peer) REQUIRES(mutex_);
  void drop(Connection& connection) REQUIRES(mutex_);
  void lose(int peer_rank, Status why) REQUIRES(mutex_);
  void part(int peer_rank) REQUIRES(mutex_);
  void cut_off(Peer& peer) REQUIRES(mutex_);

  // Reading, writing and closing (tcp_channel.cc)
  void handle(Events events) REQUIRES(mutex_);
  void handle(Connection& connection, const platform::Epoll::Event& event) REQUIRES(mutex_);
  void read(std::uint64_t id) REQUIRES(mutex_);
  void ended(Connection& connection, const std::string& why) REQUIRES(mutex_);
  void flush(Peer& peer) REQUIRES(mutex_);
  void watch_windows() REQUIRES(mutex_);
  void look_at_windows() REQUIRES(mutex_);
  void say_goodbye() REQUIRES(mutex_);
  void poll(Deadline deadline) EXCLUDES(mutex_);
  void wake_locked() REQUIRES(mutex_);
  void signal() REQUIRES(mutex_);
  void acknowledge_wake() REQUIRES(mutex_);
  bool all_flushed() REQUIRES(mutex_);
  bool all_acknowledged() REQUIRES(mutex_);
  void shut() REQUIRES(mutex_);

  Peer& at(int rank) REQUIRES(mutex_) { return peers_[static_cast<std::size_t>(rank)]; }
  Connection* find(std::uint64_t id) REQUIRES(mutex_);

  const int rank_;
  const wire::Hello identity_;
  const TcpAddress tcp_address_;
  platform::Epoll epoll_;  // its wait() is called without mutex_
  const platform::EventFd waker_;

  Mutex mutex_;
  std::optional<platform::Listener> listener_ GUARDED_BY(mutex_);
  bool listener_muted_ GUARDED_BY(mutex_) = false;
  std::vector<Peer> peers_ GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_ GUARDED_BY(mutex_);
  // Accepted connections without a greeting, oldest first; may contain ids of closed ones.
  std::deque<std::uint64_t> strangers_ GUARDED_BY(mutex_);
  std::uint64_t next_id_ GUARDED_BY(mutex_) = 2;
  std::deque<Incoming> inbox_ GUARDED_BY(mutex_);
  Deadline windows_due_ GUARDED_BY(mutex_) = Deadline::never();  // the time of the next look_at_windows()
  int waiters_ GUARDED_BY(mutex_) = 0;
  bool signalled_ GUARDED_BY(mutex_) = false;            // the waker is readable
  bool drain_after_waiters_ GUARDED_BY(mutex_) = false;  // the last thread in epoll_.wait() drains the waker
  bool closing_ GUARDED_BY(mutex_) = false;              // close() was called: no new messages
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace roundelay::channel
