#include "collective/tcp/connector.h"

#include <string>
#include <utility>

namespace roundelay::collective::tcp {

using connect::Connection;
using connect::Greeter;
using platform::Transfer;
using State = Connection::State;

Connector::Connector(platform::Epoll& epoll, platform::Listener listener, connect::Identity identity,
                     const connect::TcpAddress& own, const std::vector<connect::TcpAddress>& peers,
                     bool spreads)
    : spreads_(spreads),
      connections_(epoll, std::move(listener), peers.size()),
      greeter_(std::move(identity), own.token, connections_) {
  for (const connect::TcpAddress& peer : peers) {
    peers_.push_back({greeter_.key_for(peer.token), connect::Dial(peer, own.host)});
  }
}

void Connector::dial(StreamNumber stream, int rank) {
  Attempt attempt{stream, rank, peers_[static_cast<std::size_t>(rank)].dial};
  if (spreads_) attempt.dial.begin_at(stream % kMostStreams);
  try_next(std::move(attempt));
}

void Connector::try_next(Attempt attempt) {
  while (std::optional<platform::Socket> socket = attempt.dial.next()) {
    Connection* const connection = connections_.add(std::move(*socket), State::kDialling, attempt.rank);
    if (connection != nullptr) {
      connection->stream = attempt.stream;
      attempts_.emplace(connection->id, std::move(attempt));
      return;
    }
    attempt.dial.failed("out of epoll watches", false);
  }
  ends_.push_back({attempt.stream, attempt.rank, false, attempt.dial.unreachable(attempt.rank)});
}

void Connector::handle(const platform::Epoll::Event& event) {
  if (event.tag == connect::ConnectionTable::kListenerTag) return connections_.accept_all();
  Connection* const connection = connections_.find(event.tag);
  if (connection == nullptr) return;
  if (connection->state == State::kDialling) return dialled(*connection);
  if (event.readable) read(event.tag);
}

// Ends an attempt of this rank's and begins the next one; or drops a connection that was accepted.
void Connector::failed(Connection& connection, const std::string& why, bool again) {
  auto attempt = attempts_.extract(connection.id);
  connections_.drop(connection);
  if (attempt.empty()) return;
  attempt.mapped().dial.failed(why, again);
  try_next(std::move(attempt.mapped()));
}

// Called when an attempt has connected or failed.
void Connector::dialled(Connection& connection) {
  if (const int error = connection.socket.connect_error(); error != 0) {
    failed(connection, platform::errno_text(error), false);
  } else if (!greeter_.send_opening(connection, peers_[static_cast<std::size_t>(connection.peer)].key) ||
             !connections_.watch_input(connection)) {
    failed(connection, "closed before the greeting", false);
  } else {
    connection.state = State::kOpening;
  }
}

// Reads frame by frame and nothing behind the greeting, which is the stream's. Takes an id, because a frame
// may end the connection.
void Connector::read(std::uint64_t id) {
  while (Connection* connection = connections_.find(id)) {
    const Transfer done = connection->socket.read(connection->reader.lacking());
    if (done.state == Transfer::State::kWouldBlock) return;
    if (done.state != Transfer::State::kSome) {
      return failed(
          *connection,
          done.state == Transfer::State::kEnd ? "closed by the peer" : platform::errno_text(done.error),
          true);
    }
    connection->reader.filled(done.bytes);
    auto frame = connection->reader.next();
    if (!frame.ok() || connection->reader.said_goodbye()) return refuse(*connection, "no greeting");
    if (frame->has_value()) take_frame(*connection, **frame);
  }
}

void Connector::take_frame(Connection& connection, ConstByteSpan bytes) {
  if (connection.state == State::kOpening) {
    opened(connection, bytes);
  } else {
    greeted(connection, bytes);
  }
}

// Called with a connection's first frame.
void Connector::opened(Connection& connection, ConstByteSpan bytes) {
  switch (greeter_.open(connection, bytes, peers_.size())) {
    case Greeter::Outcome::kGoesOn:
      connection.state = State::kGreeting;
      return;
    case Greeter::Outcome::kBroken:
      return failed(connection, "closed before the greeting", true);
    case Greeter::Outcome::kStranger:
      break;
  }
  refuse(connection, "another program answers there, or a rank with another secret");
}

// Called with the other side's greeting. If it is good, the stream has its connection.
void Connector::greeted(Connection& connection, ConstByteSpan bytes) {
  const auto greeting = greeter_.read_greeting(connection, bytes);
  if (!greeting) return refuse(connection, "another program answers there");
  if (connection.peer < 0) return greeted_by_dialler(connection, *greeting);
  const auto attempt = attempts_.extract(connection.id);
  const Status same = connect::check_identity(greeter_.hello(), *greeting);
  Result<platform::Socket> socket = connections_.take(connection);
  if (!same.ok()) socket = same;
  ends_.push_back({attempt.mapped().stream, attempt.mapped().rank, false, std::move(socket)});
}

void Connector::greeted_by_dialler(Connection& connection, const connect::Greeting& greeting) {
  const Status same = connect::check_identity(greeter_.hello(), greeting);
  // A peer that differs gets the greeting too, so that it reports the difference.
  if (!greeter_.send_greeting(connection) || !same.ok()) return connections_.drop(connection);
  ends_.push_back({greeting.hello->stream, greeting.from, true, connections_.take(connection)});
}

// Called when the other side does not belong to the job.
void Connector::refuse(Connection& connection, const std::string& why) {
  if (connection.peer < 0) return connections_.refuse(connection);
  failed(connection, why, false);
}

}  // namespace roundelay::collective::tcp
