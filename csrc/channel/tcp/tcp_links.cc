#include "channel/tcp/tcp_links.h"

#include <algorithm>
#include <utility>

namespace roundelay::channel {

using platform::Transfer;
using PeerState = TcpPeer::State;
using State = connect::Connection::State;

void TcpLinks::add_peer(const connect::TcpAddress& address, const std::string& own_host) {
  peers_.push_back({.key = greeter_.key_for(address.token), .dial = connect::Dial(address, own_host)});
}

Status TcpLinks::send(int to, ConstByteSpan message) {
  TcpPeer& peer = at(to);
  if (peer.state == PeerState::kLost) return peer.lost;
  if (peer.state == PeerState::kLeft) return {};
  if (to == rank_) {
    inbox_.push_back({rank_, Bytes(message.begin(), message.end()), {}});
  } else if (peer.state == PeerState::kOpen && peer.queue.empty()) {
    const std::size_t sent = connections_.write_frame(*peer.connection, message);
    if (sent == wire::kFrameHeader + message.size()) return {};
    peer.queue.push(message, sent);
    write_queue(peer);
  } else {
    peer.queue.push(message);
    if (peer.state == PeerState::kIdle) dial(to);
  }
  return {};
}

std::optional<Status> TcpLinks::connect(int peer_rank) {
  if (at(peer_rank).state == PeerState::kIdle) dial(peer_rank);
  const TcpPeer& peer = at(peer_rank);
  switch (peer.state) {
    case PeerState::kOpen:
      return Status();
    case PeerState::kLost:
      return peer.lost;
    case PeerState::kLeft:
      return Status::aborted("rank " + std::to_string(peer_rank) + " has left the job");
    case PeerState::kIdle:
    case PeerState::kDialling:
      break;
  }
  return std::nullopt;
}

void TcpLinks::handle(const platform::Epoll::Event& event) {
  connect::Connection* const connection = connections_.find(event.tag);
  if (connection == nullptr) return;
  if (connection->state == State::kDialling) return dialled(*connection);
  if (event.writable && connection->state == State::kOpen) write_queue(at(connection->peer));
  if (event.readable) read(event.tag);
}

// Reads what has arrived. Takes an id, because a message may end the connection.
void TcpLinks::read(std::uint64_t id) {
  while (connect::Connection* connection = connections_.find(id)) {
    const ByteSpan space = connection->reader.space();
    const Transfer done = connection->socket.read(space);
    if (done.state == Transfer::State::kWouldBlock) return;
    if (done.state != Transfer::State::kSome) {
      ended(*connection,
            done.state == Transfer::State::kEnd ? "closed by the peer" : platform::errno_text(done.error));
      return;
    }
    connection->reader.filled(done.bytes);
    if (!read_frames(id)) return;
    if (done.bytes < space.size()) return;  // epoll is level-triggered and reports later bytes again
  }
}

// Takes all complete frames. Returns false if the connection has ended.
bool TcpLinks::read_frames(std::uint64_t id) {
  while (connect::Connection* connection = connections_.find(id)) {
    auto frame = connection->reader.next();
    if (!frame.ok() && connection->peer < 0) {
      connections_.refuse(*connection);
    } else if (!frame.ok()) {
      ended(*connection, frame.status().message());
    } else if (!frame->has_value()) {
      if (!connection->reader.said_goodbye()) return true;
      if (connection->state != State::kOpen) {
        ended(*connection, "left before the greeting");
      } else {
        leave(connection->peer);
      }
    } else if (connection->state == State::kOpen) {
      inbox_.push_back({connection->peer, std::move(**frame), {}});
    } else if (connection->state == State::kOpening) {
      opened(*connection, **frame);
    } else if (connection->state == State::kGreeting) {
      greeted(*connection, **frame);
    } else {
      ended(*connection, "a message before the greeting");
    }
  }
  return false;
}

// Called when a connection has failed or its peer has closed it.
void TcpLinks::ended(connect::Connection& connection, const std::string& why) {
  if (connection.state == State::kOpen) {
    lose(connection.peer,
         Status::aborted("connection to rank " + std::to_string(connection.peer) + " was lost: " + why));
  } else if (connection.peer >= 0 && at(connection.peer).connection == &connection) {
    dial_failed(connection, why, true);
  } else {
    drop(connection);
  }
}

// Sends the peer's queue as far as the socket takes it. Its connection must be established.
void TcpLinks::write_queue(TcpPeer& peer) {
  connect::Connection& connection = *peer.connection;
  const Transfer done = connections_.write(connection, peer.queue);
  if (done.state != Transfer::State::kError) return;
  // Messages that the peer sent before its end come first. read() then meets the end and reports the loss.
  const std::uint64_t id = connection.id;
  read(id);
  if (connect::Connection* still = connections_.find(id)) ended(*still, platform::errno_text(done.error));
}

void TcpLinks::say_goodbye() {
  leaving_ = true;
  for (TcpPeer& peer : peers_) {
    if (peer.state != PeerState::kOpen) continue;
    peer.queue.push_goodbye();
    write_queue(peer);
  }
}

bool TcpLinks::all_written() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const TcpPeer& peer) { return peer.queue.empty(); });
}

void TcpLinks::clear() {
  for (TcpPeer& peer : peers_) {
    peer.connection = peer.parked = nullptr;
    peer.queue.clear();
  }
  connections_.clear();
  inbox_.clear();
}

}  // namespace roundelay::channel
