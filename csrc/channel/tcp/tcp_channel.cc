#include "channel/tcp/tcp_channel.h"

#include <algorithm>
#include <array>
#include <utility>

namespace roundelay::channel {
namespace {

using platform::Transfer;
using Event = platform::Epoll::Event;
using Interest = platform::Epoll::Interest;

constexpr Duration kAcknowledgeSlice = std::chrono::microseconds(200);
constexpr Duration kWindowPeriod = std::chrono::seconds(1);

// Writes until the queue is empty or the socket is full. kSome means that the queue is empty.
Transfer write_out(SendQueue& queue, const platform::Socket& socket) {
  while (!queue.empty()) {
    std::array<ConstByteSpan, platform::Socket::kMostParts> parts;
    const std::size_t count = queue.peek(parts);
    const Transfer done = socket.write(std::span(parts).first(count));
    if (done.state != Transfer::State::kSome) return done;
    queue.advance(done.bytes);
  }
  return {};
}

}  // namespace

TcpChannel::TcpChannel(int rank, wire::Hello identity, TcpListener listener, platform::Epoll epoll,
                       platform::EventFd waker)
    : rank_(rank),
      identity_(std::move(identity)),
      tcp_address_(std::move(listener.tcp_address)),
      epoll_(std::move(epoll)),
      waker_(std::move(waker)),
      listener_(std::move(listener.socket)) {}

Result<std::unique_ptr<TcpChannel>> TcpChannel::create(const Group& world, wire::Hello identity,
                                                       std::span<const Bytes> tcp_addresses,
                                                       TcpListener listener) {
  if (tcp_addresses.size() != world.ranks.size())
    return Status::internal("not one TCP address for each rank");
  auto epoll = platform::Epoll::create();
  if (!epoll.ok()) return epoll.status();
  auto waker = platform::EventFd::create();
  if (!waker.ok()) return waker.status();

  std::unique_ptr<TcpChannel> channel(new TcpChannel(world.world_rank(), std::move(identity),
                                                     std::move(listener), std::move(epoll).value(),
                                                     std::move(waker).value()));
  MutexLock lock(channel->mutex_);
  for (const Bytes& bytes : tcp_addresses) {
    auto tcp_address = decode_tcp_address(bytes);
    if (!tcp_address.ok()) return tcp_address.status();
    Peer& peer = channel->peers_.emplace_back();
    peer.token = tcp_address->token;
    peer.endpoints = tcp_address->endpoints(channel->tcp_address_.host);
    peer.host = std::move(tcp_address->host);
  }
  ROUNDELAY_RETURN_IF_ERROR(channel->epoll_.add(channel->waker_.fd(), kWakerTag, Interest::kRead));
  ROUNDELAY_RETURN_IF_ERROR(channel->epoll_.add(channel->listener_->fd(), kListenerTag, Interest::kRead));
  return channel;
}

TcpChannel::~TcpChannel() {
  MutexLock lock(mutex_);
  shut();
}

Status TcpChannel::send(int to, ConstByteSpan message) {
  MutexLock lock(mutex_);
  if (to < 0 || static_cast<std::size_t>(to) >= peers_.size()) {
    return Status::invalid("cannot send to rank " + std::to_string(to) + " of " +
                           std::to_string(peers_.size()));
  }
  if (message.size() > kLongestFrame) {
    return Status::invalid("a control message of " + std::to_string(message.size()) +
                           " bytes is over the limit of " + std::to_string(kLongestFrame));
  }
  if (closing_) return Status::unavailable("the channel is closed");
  Peer& peer = at(to);
  if (peer.state == PeerState::kLost) return peer.lost;
  if (peer.state == PeerState::kLeft) return {};
  if (to == rank_) {
    inbox_.push_back({rank_, Bytes(message.begin(), message.end()), {}});
  } else if (peer.state == PeerState::kOpen && peer.queue.empty()) {
    const auto header = frame_header(message.size());
    const std::array<ConstByteSpan, 2> parts = {ConstByteSpan(header), message};
    const Transfer done = peer.connection->socket.write(parts);
    watch_windows();
    if (done.state == Transfer::State::kSome && done.bytes == header.size() + message.size()) return {};
    peer.queue.push(message, done.bytes);
    flush(peer);
  } else {
    peer.queue.push(message);
    if (peer.state == PeerState::kIdle) dial(to);
  }
  wake_locked();
  return {};
}

std::optional<Incoming> TcpChannel::receive() {
  MutexLock lock(mutex_);
  acknowledge_wake();
  if (inbox_.empty() && !closed_) {
    std::array<Event, platform::Epoll::kMostEvents> events;
    const std::size_t count = epoll_.wait(events, Deadline::at(TimePoint{}));
    handle(Events(events).first(count));
  }
  if (inbox_.empty()) return std::nullopt;
  Incoming first = std::move(inbox_.front());
  inbox_.pop_front();
  wake_locked();
  return first;
}

void TcpChannel::wait(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (!inbox_.empty() || closed_) return;
  }
  poll(deadline);
}

// Waits for events and handles them.
void TcpChannel::poll(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    ++waiters_;
    deadline = deadline.sooner(windows_due_);
  }
  std::array<Event, platform::Epoll::kMostEvents> events;
  const std::size_t count = epoll_.wait(events, deadline);
  MutexLock lock(mutex_);
  --waiters_;
  if (waiters_ == 0 && drain_after_waiters_) acknowledge_wake();
  if (!closed_) handle(Events(events).first(count));
  if (windows_due_.passed()) look_at_windows();
  wake_locked();
}

void TcpChannel::wake() {
  MutexLock lock(mutex_);
  signal();
}

void TcpChannel::signal() {
  drain_after_waiters_ = false;
  if (!signalled_) waker_.signal();
  signalled_ = true;
}

// Drains the waker, but only when no thread is waiting: all waiting threads must see it readable.
void TcpChannel::acknowledge_wake() {
  if (!signalled_) return;
  drain_after_waiters_ = waiters_ > 0;
  if (drain_after_waiters_) return;
  waker_.drain();
  signalled_ = false;
}

// Wakes another waiting thread if there are messages: the event that brought them no longer wakes it.
void TcpChannel::wake_locked() {
  if (!inbox_.empty() && waiters_ > 0) signal();
}

Status TcpChannel::connect(int peer_rank, Deadline deadline) {
  if (peer_rank == rank_) return {};
  bool woken = false;
  Status result;
  while (true) {
    {
      MutexLock lock(mutex_);
      // A pending wake() would make this loop spin. It is acknowledged here and repeated at the end.
      woken = woken || signalled_;
      acknowledge_wake();
      Peer& peer = at(peer_rank);
      if (closing_) result = Status::unavailable("the channel is closed");
      if (peer.state == PeerState::kIdle && !closing_) dial(peer_rank);
      if (peer.state == PeerState::kLost) result = peer.lost;
      if (peer.state == PeerState::kLeft) {
        result = Status::aborted("rank " + std::to_string(peer_rank) + " has left the job");
      }
      if (peer.state == PeerState::kOpen || !result.ok()) break;
      if (deadline.passed()) {
        result = Status::aborted("cannot connect to rank " + std::to_string(peer_rank) + " on " + peer.host +
                                 " in time" + (peer.last_failure.empty() ? "" : ": " + peer.last_failure));
        break;
      }
    }
    poll(deadline);
  }
  if (woken) wake();
  return result;
}

void TcpChannel::handle(Events events) {
  for (const Event& event : events) {
    if (event.tag == kListenerTag) {
      accept_all();
    } else if (event.tag != kWakerTag) {
      if (Connection* connection = find(event.tag)) handle(*connection, event);
    }
  }
}

void TcpChannel::handle(Connection& connection, const Event& event) {
  const std::uint64_t id = connection.id;
  if (connection.stage == Stage::kDialling) {
    dialled(connection);
    return;
  }
  if (event.writable && connection.stage == Stage::kOpen) flush(at(connection.peer));
  if (event.readable) read(id);
}

TcpChannel::Connection* TcpChannel::find(std::uint64_t id) {
  const auto entry = connections_.find(id);
  return entry == connections_.end() ? nullptr : entry->second.get();
}

// Takes an id, because a message may end the connection.
void TcpChannel::read(std::uint64_t id) {
  while (Connection* connection = find(id)) {
    const ByteSpan space = connection->reader.space();
    const Transfer done = connection->socket.read(space);
    if (done.state == Transfer::State::kWouldBlock) return;
    if (done.state != Transfer::State::kSome) {
      ended(*connection,
            done.state == Transfer::State::kEnd ? "closed by the peer" : platform::errno_text(done.error));
      return;
    }
    connection->reader.filled(done.bytes);
    while ((connection = find(id)) != nullptr) {
      auto frame = connection->reader.next();
      if (!frame.ok()) {
        ended(*connection, frame.status().message());
        return;
      }
      if (!frame->has_value()) {
        if (!connection->reader.said_goodbye()) break;
        if (connection->stage == Stage::kOpen) {
          part(connection->peer);
        } else {
          ended(*connection, "left before the greeting");
        }
        return;
      }
      if (connection->stage == Stage::kOpen) {
        inbox_.push_back({connection->peer, std::move(**frame), {}});
      } else if (connection->stage == Stage::kGreeting) {
        greeted(*connection, **frame);
      } else {
        ended(*connection, "a message before the greeting");
        return;
      }
    }
    if (done.bytes < space.size()) return;  // epoll is level-triggered and reports later bytes again
  }
}

void TcpChannel::ended(Connection& connection, const std::string& why) {
  if (connection.stage == Stage::kOpen) {
    lose(connection.peer,
         Status::aborted("connection to rank " + std::to_string(connection.peer) + " was lost: " + why));
  } else if (connection.peer >= 0 && at(connection.peer).connection == &connection) {
    dial_failed(connection, why);
  } else {
    drop(connection);
  }
}

// Sends the peer's queue as far as the socket takes it. Its connection must be established.
void TcpChannel::flush(Peer& peer) {
  Connection& connection = *peer.connection;
  const Transfer done = write_out(peer.queue, connection.socket);
  watch_windows();
  if (done.state == Transfer::State::kError) {
    // Messages that the peer sent before its end come first. read() then meets the end and reports the loss.
    const std::uint64_t id = connection.id;
    read(id);
    if (Connection* still = find(id)) ended(*still, platform::errno_text(done.error));
    return;
  }
  const bool full = done.state == Transfer::State::kWouldBlock;
  if (full == connection.watches_output) return;
  connection.watches_output = full;
  // Cannot fail, because epoll has the descriptor.
  static_cast<void>(
      epoll_.change(connection.socket.fd(), connection.id, full ? Interest::kReadWrite : Interest::kRead));
}

void TcpChannel::watch_windows() {
  if (windows_due_ == Deadline::never()) windows_due_ = Deadline::after(kWindowPeriod);
}

// A stopped process reads nothing, but its kernel still answers, so it is never lost. No event tells that its
// window is closed; while there is output, this function checks once a second.
void TcpChannel::look_at_windows() {
  windows_due_ = Deadline::never();
  for (const auto& [id, connection] : connections_) {
    if (connection->stage != Stage::kOpen) continue;
    const bool closed = connection->socket.held_back();
    if (closed != connection->window_closed) connection->socket.set_window_closed(closed);
    connection->window_closed = closed;
    if (connection->socket.unacknowledged() > 0) watch_windows();
  }
}

bool TcpChannel::all_flushed() {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.queue.empty(); });
}

bool TcpChannel::all_acknowledged() {
  return std::all_of(connections_.begin(), connections_.end(), [](const auto& entry) {
    return entry.second->stage != Stage::kOpen || entry.second->socket.unacknowledged() == 0;
  });
}

// Says goodbye on all established connections. stand() does it for a connection that is established later.
void TcpChannel::say_goodbye() {
  for (Peer& peer : peers_) {
    if (peer.state != PeerState::kOpen) continue;
    peer.queue.push_goodbye();
    flush(peer);
  }
}

void TcpChannel::close(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (!std::exchange(closing_, true)) say_goodbye();
  }
  while (true) {
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      acknowledge_wake();
      if (all_flushed() || deadline.passed()) break;
    }
    poll(deadline);
  }
  {
    MutexLock lock(mutex_);
    for (const auto& [id, connection] : connections_) {
      if (connection->stage == Stage::kOpen) connection->socket.shutdown_output();
    }
  }
  // Closing a socket with unread input resets the connection and discards output in transit. So all output
  // must be acknowledged first. No event tells that, and the loop reads input meanwhile.
  while (true) {
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      if (all_acknowledged() || deadline.passed()) {
        shut();
        return;
      }
    }
    poll(Deadline::after(kAcknowledgeSlice).sooner(deadline));
  }
}

// Closes everything, and wakes all waiting threads.
void TcpChannel::shut() {
  closing_ = closed_ = true;
  for (Peer& peer : peers_) {
    peer.connection = peer.parked = nullptr;
    peer.queue.clear();
  }
  connections_.clear();
  listener_.reset();
  inbox_.clear();
  signal();
}

}  // namespace roundelay::channel
