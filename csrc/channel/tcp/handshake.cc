// TcpChannel: how connections are established and how they end.
#include <algorithm>
#include <array>

#include "base/log.h"
#include "channel/tcp/tcp_channel.h"

namespace roundelay::channel {
namespace {

using Interest = platform::Epoll::Interest;

constexpr std::size_t kSpareStrangers = 64;

}  // namespace

// Takes the socket and watches it. Returns null if epoll refuses.
TcpChannel::Connection* TcpChannel::add(platform::Socket socket, Stage stage, int peer) {
  const std::uint64_t id = next_id_++;
  auto connection = std::make_unique<Connection>(Connection{id, std::move(socket), stage, peer});
  const Interest interest = stage == Stage::kDialling ? Interest::kWrite : Interest::kRead;
  if (!epoll_.add(connection->socket.fd(), id, interest).ok()) return nullptr;
  return connections_.emplace(id, std::move(connection)).first->second.get();
}

// Closes a connection. Its descriptor is free again, so a muted listener may accept.
void TcpChannel::drop(Connection& connection) {
  if (connection.peer >= 0) {
    Peer& peer = at(connection.peer);
    if (peer.connection == &connection) peer.connection = nullptr;
    if (peer.parked == &connection) peer.parked = nullptr;
  }
  connections_.erase(connection.id);
  if (listener_muted_) {
    listener_muted_ = !epoll_.change(listener_->fd(), kListenerTag, Interest::kRead).ok();
  }
}

// Marks the peer as lost; receive() reports it.
void TcpChannel::lose(int peer_rank, Status why) {
  Peer& peer = at(peer_rank);
  peer.state = PeerState::kLost;
  peer.lost = why;
  cut_off(peer);
  inbox_.push_back({peer_rank, {}, std::move(why)});
}

// Marks the peer as left in order, after its goodbye.
void TcpChannel::part(int peer_rank) {
  at(peer_rank).state = PeerState::kLeft;
  cut_off(at(peer_rank));
}

// Drops the peer's queue and connections.
void TcpChannel::cut_off(Peer& peer) {
  peer.queue.clear();
  if (peer.connection != nullptr) drop(*peer.connection);
  if (peer.parked != nullptr) drop(*peer.parked);
}

// Tries the peer's next address. After the last one it uses a parked connection if there is one, else the
// peer is lost.
void TcpChannel::dial(int peer_rank) {
  Peer& peer = at(peer_rank);
  peer.state = PeerState::kDialling;
  while (peer.next_endpoint < peer.endpoints.size()) {
    const platform::Endpoint& endpoint = peer.endpoints[peer.next_endpoint++];
    auto socket = platform::Socket::start_connect(endpoint);
    if (!socket.ok()) {
      peer.last_failure = socket.status().message();
      continue;
    }
    peer.connection = add(std::move(socket).value(), Stage::kDialling, peer_rank);
    if (peer.connection != nullptr) return;
    peer.last_failure = "out of epoll watches";
  }
  if (Connection* parked = peer.parked) {
    peer.parked = nullptr;
    peer.connection = parked;
    if (send_greeting(*parked)) {
      stand(*parked);
      return;
    }
  }
  const std::string why =
      peer.endpoints.empty() ? "it has no network address that this machine could use" : peer.last_failure;
  lose(peer_rank, Status::aborted("cannot connect to rank " + std::to_string(peer_rank) + " on " +
                                  peer.host.substr(0, peer.host.find('/')) + ": " + why));
}

// Notes why an attempt failed and tries the next address.
void TcpChannel::dial_failed(Connection& connection, const std::string& why) {
  const int peer_rank = connection.peer;
  Peer& peer = at(peer_rank);
  peer.last_failure = peer.endpoints[peer.next_endpoint - 1].to_string() + ": " + why;
  drop(connection);
  dial(peer_rank);
}

// Called when an attempt has connected or failed.
void TcpChannel::dialled(Connection& connection) {
  const int error = connection.socket.connect_error();
  if (error != 0) {
    dial_failed(connection, platform::errno_text(error));
  } else if (!send_greeting(connection) ||
             !epoll_.change(connection.socket.fd(), connection.id, Interest::kRead).ok()) {
    dial_failed(connection, "closed before the greeting");
  } else {
    connection.stage = Stage::kGreeting;
  }
}

// Sends this rank's greeting. Returns false if the connection is broken: a new connection takes it all at
// once.
bool TcpChannel::send_greeting(Connection& connection) {
  const Bytes greeting = encode_greeting(at(connection.peer).token, connection.peer, identity_);
  const auto header = frame_header(greeting.size());
  const std::array<ConstByteSpan, 2> parts = {ConstByteSpan(header), ConstByteSpan(greeting)};
  const platform::Transfer done = connection.socket.write(parts);
  return done.state == platform::Transfer::State::kSome && done.bytes == header.size() + greeting.size();
}

void TcpChannel::accept_all() {
  while (true) {
    auto accepted = listener_->accept();
    if (!accepted.ok()) {
      // The listener stays readable, so epoll must ignore it; otherwise each wait would end at once.
      log(LogLevel::kWarning, accepted.status().message());
      listener_muted_ = epoll_.change(listener_->fd(), kListenerTag, Interest::kNone).ok();
      return;
    }
    if (!accepted->has_value()) return;
    if (const Connection* stranger = add(std::move(**accepted), Stage::kGreeting, -1)) {
      strangers_.push_back(stranger->id);
      limit_strangers();
    }
  }
}

// Closes the oldest strangers if there are more than all peers could be.
void TcpChannel::limit_strangers() {
  std::erase_if(strangers_, [this](std::uint64_t id) REQUIRES(mutex_) {
    const Connection* connection = find(id);
    return connection == nullptr || connection->peer >= 0;
  });
  while (strangers_.size() > peers_.size() + kSpareStrangers) {
    drop(*find(strangers_.front()));
    strangers_.pop_front();
  }
}

// Called with the first frame of a connection.
void TcpChannel::greeted(Connection& connection, ConstByteSpan bytes) {
  const auto greeting = decode_greeting(bytes, tcp_address_.token, rank_);
  if (connection.peer >= 0) {
    greeted_by_acceptor(connection, greeting);
    return;
  }
  const bool known = greeting.has_value() && greeting->from >= 0 && greeting->from != rank_ &&
                     static_cast<std::size_t>(greeting->from) < peers_.size();
  const PeerState state = known ? at(greeting->from).state : PeerState::kLost;
  if (state != PeerState::kIdle && state != PeerState::kDialling) {
    drop(connection);
    return;
  }
  connection.peer = greeting->from;
  greeted_by_dialler(connection, *greeting);
}

Status TcpChannel::check_identity(const Greeting& greeting) const {
  if (greeting.hello.ok()) return compare_hellos(identity_, *greeting.hello);
  return Status::aborted("rank " + std::to_string(rank_) + " (\"" + identity_.version +
                         "\") cannot read the greeting of rank " + std::to_string(greeting.from) +
                         ", which runs another build: " + greeting.hello.status().message());
}

// Called with the answer to this rank's greeting. If it is good, the connection is established.
void TcpChannel::greeted_by_acceptor(Connection& connection, const std::optional<Greeting>& greeting) {
  if (!greeting.has_value() || greeting->from != connection.peer) {
    dial_failed(connection, "another program answers there");
    return;
  }
  if (Status same = check_identity(*greeting); !same.ok()) {
    lose(connection.peer, std::move(same));
    return;
  }
  stand(connection);
}

// Called with the greeting of a peer that connected. Establishes, parks or drops the connection.
void TcpChannel::greeted_by_dialler(Connection& connection, const Greeting& greeting) {
  Peer& peer = at(connection.peer);
  if (Status same = check_identity(greeting); !same.ok()) {
    send_greeting(connection);  // lets the peer report the same difference
    const int peer_rank = connection.peer;
    drop(connection);
    lose(peer_rank, std::move(same));
    return;
  }
  if (peer.state == PeerState::kDialling && rank_ < connection.peer) {
    if (peer.parked != nullptr) drop(*peer.parked);
    peer.parked = &connection;
    connection.stage = Stage::kParked;
    return;
  }
  if (!send_greeting(connection)) {
    drop(connection);  // this rank's own attempt tells whether the peer is lost
    return;
  }
  if (peer.connection != nullptr) drop(*peer.connection);
  stand(connection);
}

// Establishes the connection, and sends what is queued for the peer.
void TcpChannel::stand(Connection& connection) {
  Peer& peer = at(connection.peer);
  peer.state = PeerState::kOpen;
  peer.connection = &connection;
  if (peer.parked != nullptr) drop(*peer.parked);
  connection.stage = Stage::kOpen;
  connection.reader.set_longest(kLongestFrame);
  if (closing_) peer.queue.push_goodbye();
  if (!peer.queue.empty()) flush(peer);
}

}  // namespace roundelay::channel
