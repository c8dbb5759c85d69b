#include "connect/connection_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"

namespace roundelay::connect {
namespace {

using platform::Transfer;
using Interest = platform::Epoll::Interest;
using State = Connection::State;

constexpr std::size_t kSpareStrangers = 64;
// A rank greets at once. Its process may be stopped for a while, though, and a busy host is slow.
constexpr Duration kSilence = std::chrono::seconds(30);
constexpr Duration kWindowPeriod = std::chrono::seconds(1);

}  // namespace

Status ConnectionTable::listen() {
  for (const platform::Fd& fd : listener_->fds()) {
    ROUNDELAY_RETURN_IF_ERROR(epoll_.add(fd, kListenerTag, Interest::kRead));
  }
  return {};
}

// Returns false if epoll refuses.
bool ConnectionTable::watch_listener(Interest interest) {
  const auto fds = listener_->fds();
  return std::all_of(fds.begin(), fds.end(),
                     [&](const platform::Fd& fd) { return epoll_.change(fd, kListenerTag, interest).ok(); });
}

Connection* ConnectionTable::add(platform::Socket socket, State state, int peer) {
  const std::uint64_t id = next_id_++;
  auto connection = std::make_unique<Connection>(Connection{id, std::move(socket), state, peer});
  const Interest interest = state == State::kDialling ? Interest::kWrite : Interest::kRead;
  if (!epoll_.add(connection->socket.fd(), id, interest).ok()) return nullptr;
  return connections_.emplace(id, std::move(connection)).first->second.get();
}

Connection* ConnectionTable::find(std::uint64_t id) const {
  const auto entry = connections_.find(id);
  return entry == connections_.end() ? nullptr : entry->second.get();
}

void ConnectionTable::drop(Connection& connection) {
  connections_.erase(connection.id);
  if (listener_muted_) {
    listener_muted_ = !watch_listener(Interest::kRead);
  }
}

platform::Socket ConnectionTable::take(Connection& connection) {
  epoll_.remove(connection.socket.fd());
  platform::Socket socket = std::move(connection.socket);
  drop(connection);
  return socket;
}

void ConnectionTable::refuse(Connection& connection) {
  trust::count_stranger("a TCP connection without the job's secret or token");
  drop(connection);
}

void ConnectionTable::accept_all() {
  while (true) {
    auto accepted = listener_->accept();
    if (!accepted.ok()) {
      // The listener stays readable, so epoll must ignore it; otherwise each wait would end at once.
      log(LogLevel::kWarning, accepted.status().message());
      listener_muted_ = watch_listener(Interest::kNone);
      return;
    }
    if (!accepted->has_value()) return;
    if (const Connection* stranger = add(std::move(**accepted), State::kOpening, -1)) {
      strangers_.push_back({stranger->id, Deadline::after(kSilence)});
      forget_greeted();
      if (strangers_.size() > ranks_ + kSpareStrangers) drop_oldest("too many callers say nothing");
    }
  }
}

// Forgets the strangers that have greeted or are closed.
void ConnectionTable::forget_greeted() {
  std::erase_if(strangers_, [this](const Stranger& stranger) {
    const Connection* connection = find(stranger.id);
    return connection == nullptr || connection->peer >= 0;
  });
}

void ConnectionTable::drop_oldest(const char* why) {
  trust::count_stranger(why);
  drop(*find(strangers_.front().id));
  strangers_.pop_front();
}

void ConnectionTable::drop_silent() {
  forget_greeted();
  while (!strangers_.empty() && strangers_.front().until.passed()) drop_oldest("it does not greet");
}

Deadline ConnectionTable::due() const {
  return strangers_.empty() ? windows_due_ : windows_due_.sooner(strangers_.front().until);
}

bool ConnectionTable::watch_input(const Connection& connection) {
  return epoll_.change(connection.socket.fd(), connection.id, Interest::kRead).ok();
}

Transfer ConnectionTable::write(Connection& connection, wire::SendQueue& queue) {
  Transfer done;
  while (!queue.empty() && done.state == Transfer::State::kSome) {
    std::array<ConstByteSpan, platform::Socket::kMostParts> parts;
    const std::size_t count = queue.peek(parts);
    done = connection.socket.write(std::span(parts).first(count));
    if (done.state == Transfer::State::kSome) queue.advance(done.bytes);
  }
  has_written();
  const bool full = done.state == Transfer::State::kWouldBlock;
  if (done.state != Transfer::State::kError && full != connection.watches_output) {
    connection.watches_output = full;
    // Cannot fail, because epoll has the descriptor.
    static_cast<void>(
        epoll_.change(connection.socket.fd(), connection.id, full ? Interest::kReadWrite : Interest::kRead));
  }
  return done;
}

std::size_t ConnectionTable::write_frame(Connection& connection, ConstByteSpan message) {
  const auto header = wire::frame_header(message.size());
  const std::array<ConstByteSpan, 2> parts = {ConstByteSpan(header), message};
  const Transfer done = connection.socket.write(parts);
  if (connection.state == State::kOpen) has_written();
  return done.state == Transfer::State::kSome ? done.bytes : 0;
}

void ConnectionTable::has_written() {
  if (windows_due_ == Deadline::never()) windows_due_ = Deadline::after(kWindowPeriod);
}

void ConnectionTable::check_windows() {
  windows_due_ = Deadline::never();
  for (const auto& [id, connection] : connections_) {
    if (connection->state != State::kOpen) continue;
    const bool closed = connection->socket.held_back();
    if (closed != connection->window_closed) connection->socket.set_window_closed(closed);
    connection->window_closed = closed;
    if (connection->socket.unacknowledged() > 0) has_written();
  }
}

void ConnectionTable::shutdown_output() {
  for (const auto& [id, connection] : connections_) {
    if (connection->state == State::kOpen) connection->socket.shutdown_output();
  }
}

bool ConnectionTable::all_acknowledged() const {
  return std::all_of(connections_.begin(), connections_.end(), [](const auto& entry) {
    return entry.second->state != State::kOpen || entry.second->socket.unacknowledged() == 0;
  });
}

void ConnectionTable::clear() {
  connections_.clear();
  listener_.reset();
}

}  // namespace roundelay::connect
