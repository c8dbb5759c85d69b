// One rank's links to its peers: how connections are established, carry frames and end. TcpChannel locks it
// and waits for its events; tcp_channel.h describes the protocol.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/channel.h"
#include "channel/tcp/tcp_peer.h"
#include "connect/connection_table.h"
#include "connect/greeter.h"
#include "connect/tcp_address.h"
#include "platform/tcp/epoll.h"

namespace roundelay::channel {

// One thread at a time may use it.
class TcpLinks {
 public:
  // `own` is this rank's address. `connections` outlives the links.
  TcpLinks(int rank, connect::Identity identity, const connect::TcpAddress& own,
           connect::ConnectionTable& connections)
      : rank_(rank), greeter_(std::move(identity), own.token, connections), connections_(connections) {}
  // Adds the next rank. Call it once for each rank, from rank 0 on. `own_host`: see TcpAddress::endpoints().
  void add_peer(const connect::TcpAddress& address, const std::string& own_host);

  // Sends or queues a message, and connects if there is no connection yet. Messages to this rank go to the
  // inbox, those to a peer that has left are dropped. Errors: kAborted (the peer is lost).
  Status send(int to, ConstByteSpan message);
  // Starts to connect to a peer if there is no connection yet. Returns nothing while the attempt runs, ok if
  // the peer's connection is established. Errors: kAborted (lost or left).
  std::optional<Status> connect(int peer);
  [[nodiscard]] const TcpPeer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  // Handles an event of the connection with this tag. Does nothing if the connection is closed.
  void handle(const platform::Epoll::Event& event);
  // Returns the received messages and losses, in order. The caller removes those that it has taken.
  [[nodiscard]] std::deque<Incoming>& inbox() { return inbox_; }

  // Says goodbye on all established connections, and on those that are established later.
  void say_goodbye();
  // Returns whether the sockets have taken all messages.
  [[nodiscard]] bool all_written() const;
  // Forgets all connections, queued messages and received ones.
  void clear();

 private:
  // Making and ending connections (handshake.cc)
  void dial(int peer_rank);
  void dial_failed(connect::Connection& connection, const std::string& why, bool again);
  void dialled(connect::Connection& connection);
  void opened(connect::Connection& connection, ConstByteSpan bytes);
  void greeted(connect::Connection& connection, ConstByteSpan bytes);
  void greeted_by_acceptor(connect::Connection& connection, const std::optional<connect::Greeting>& greeting);
  void greeted_by_dialler(connect::Connection& connection, const connect::Greeting& greeting);
  void establish(connect::Connection& connection);
  void drop(connect::Connection& connection);
  void lose(int peer_rank, Status why);
  void leave(int peer_rank);
  void cut_off(TcpPeer& peer);

  // Moving bytes (tcp_links.cc)
  void read(std::uint64_t id);
  bool read_frames(std::uint64_t id);
  void ended(connect::Connection& connection, const std::string& why);
  void write_queue(TcpPeer& peer);
  TcpPeer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  connect::Greeter greeter_;
  connect::ConnectionTable& connections_;
  std::vector<TcpPeer> peers_;
  std::deque<Incoming> inbox_;
  bool leaving_ = false;  // say_goodbye() was called
};

}  // namespace roundelay::channel
