// TcpLinks: how connections are established and how they end.
#include <optional>
#include <utility>

#include "channel/tcp/tcp_links.h"

namespace roundelay::channel {

using PeerState = TcpPeer::State;
using State = connect::Connection::State;

// Closes a connection.
void TcpLinks::drop(connect::Connection& connection) {
  if (connection.peer >= 0) {
    TcpPeer& peer = at(connection.peer);
    if (peer.connection == &connection) peer.connection = nullptr;
    if (peer.parked == &connection) peer.parked = nullptr;
  }
  connections_.drop(connection);
}

// Marks the peer as lost; receive() reports it.
void TcpLinks::lose(int peer_rank, Status why) {
  TcpPeer& peer = at(peer_rank);
  peer.state = PeerState::kLost;
  peer.lost = why;
  cut_off(peer);
  inbox_.push_back({peer_rank, {}, std::move(why)});
}

// Marks the peer as left in order, after its goodbye.
void TcpLinks::leave(int peer_rank) {
  at(peer_rank).state = PeerState::kLeft;
  cut_off(at(peer_rank));
}

// Drops the peer's queue and connections.
void TcpLinks::cut_off(TcpPeer& peer) {
  peer.queue.clear();
  if (peer.connection != nullptr) drop(*peer.connection);
  if (peer.parked != nullptr) drop(*peer.parked);
}

// Tries the peer's next address. After the last one it uses a parked connection if there is one, else the
// peer is lost.
void TcpLinks::dial(int peer_rank) {
  TcpPeer& peer = at(peer_rank);
  peer.state = PeerState::kDialling;
  while (std::optional<platform::Socket> socket = peer.dial.next()) {
    peer.connection = connections_.add(std::move(*socket), State::kDialling, peer_rank);
    if (peer.connection != nullptr) return;
    peer.dial.failed("out of epoll watches", false);
  }
  if (connect::Connection* parked = peer.parked) {
    peer.parked = nullptr;
    peer.connection = parked;
    if (greeter_.send_greeting(*parked)) {
      establish(*parked);
      return;
    }
  }
  lose(peer_rank, peer.dial.unreachable(peer_rank));
}

// Tries the next address, or the same one `again`: see Dial::failed().
void TcpLinks::dial_failed(connect::Connection& connection, const std::string& why, bool again) {
  const int peer_rank = connection.peer;
  at(peer_rank).dial.failed(why, again);
  drop(connection);
  dial(peer_rank);
}

// Called when an attempt has connected or failed.
void TcpLinks::dialled(connect::Connection& connection) {
  const int error = connection.socket.connect_error();
  if (error != 0) {
    dial_failed(connection, platform::errno_text(error), false);
  } else if (!greeter_.send_opening(connection, at(connection.peer).key) ||
             !connections_.watch_input(connection)) {
    dial_failed(connection, "closed before the greeting", false);
  } else {
    connection.state = State::kOpening;
  }
}

// Called with a connection's first frame.
void TcpLinks::opened(connect::Connection& connection, ConstByteSpan bytes) {
  switch (greeter_.open(connection, bytes, peers_.size())) {
    case connect::Greeter::Outcome::kGoesOn:
      connection.state = State::kGreeting;
      return;
    case connect::Greeter::Outcome::kBroken:
      return ended(connection, "closed before the greeting");
    case connect::Greeter::Outcome::kStranger:
      break;
  }
  if (connection.peer < 0) return connections_.refuse(connection);
  dial_failed(connection, "another program answers there, or a rank with another secret", false);
}

// Called with the peer's greeting.
void TcpLinks::greeted(connect::Connection& connection, ConstByteSpan bytes) {
  const auto greeting = greeter_.read_greeting(connection, bytes);
  if (connection.peer >= 0) return greeted_by_acceptor(connection, greeting);
  if (!greeting.has_value()) return connections_.refuse(connection);
  const PeerState state = at(greeting->from).state;
  if (state != PeerState::kIdle && state != PeerState::kDialling) return drop(connection);
  connection.peer = greeting->from;
  greeted_by_dialler(connection, *greeting);
}

// Called with the answer to this rank's greeting. If it is good, the connection is established.
void TcpLinks::greeted_by_acceptor(connect::Connection& connection,
                                   const std::optional<connect::Greeting>& greeting) {
  if (!greeting.has_value()) return dial_failed(connection, "another program answers there", false);
  if (Status same = connect::check_identity(greeter_.hello(), *greeting); !same.ok()) {
    return lose(connection.peer, std::move(same));
  }
  establish(connection);
}

// Called with the greeting of a peer that connected. Establishes, parks or drops the connection.
void TcpLinks::greeted_by_dialler(connect::Connection& connection, const connect::Greeting& greeting) {
  TcpPeer& peer = at(connection.peer);
  if (Status same = connect::check_identity(greeter_.hello(), greeting); !same.ok()) {
    greeter_.send_greeting(connection);  // lets the peer report the same difference
    const int peer_rank = connection.peer;
    drop(connection);
    lose(peer_rank, std::move(same));
    return;
  }
  if (peer.state == PeerState::kDialling && rank_ < connection.peer) {
    if (peer.parked != nullptr) drop(*peer.parked);
    peer.parked = &connection;
    connection.state = State::kParked;
    return;
  }
  if (!greeter_.send_greeting(connection)) {
    drop(connection);  // this rank's own attempt tells whether the peer is lost
    return;
  }
  if (peer.connection != nullptr) drop(*peer.connection);
  establish(connection);
}

// Establishes the connection, and sends what is queued for the peer.
void TcpLinks::establish(connect::Connection& connection) {
  TcpPeer& peer = at(connection.peer);
  peer.state = PeerState::kOpen;
  peer.connection = &connection;
  if (peer.parked != nullptr) drop(*peer.parked);
  connection.state = State::kOpen;
  connection.reader.set_longest(wire::kLongestFrame);
  if (leaving_) peer.queue.push_goodbye();
  if (!peer.queue.empty()) write_queue(peer);
}

}  // namespace roundelay::channel
