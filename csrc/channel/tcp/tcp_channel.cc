#include "channel/tcp/tcp_channel.h"

#include <array>
#include <utility>

namespace roundelay::channel {
namespace {

using Event = platform::Epoll::Event;
using Events = std::array<Event, platform::Epoll::kMostEvents>;
using Interest = platform::Epoll::Interest;

constexpr Duration kAcknowledgeSlice = std::chrono::microseconds(200);

}  // namespace

TcpChannel::TcpChannel(int rank, std::size_t ranks, connect::Identity identity, connect::TcpListener listener,
                       platform::Epoll epoll, platform::Epoll gate, platform::EventFd waker)
    : rank_(rank),
      ranks_(ranks),
      epoll_(std::move(epoll)),
      gate_(std::move(gate)),
      waker_(std::move(waker)),
      connections_(epoll_, std::move(listener.socket), ranks),
      links_(rank, std::move(identity), listener.tcp_address, connections_) {}

Result<std::unique_ptr<TcpChannel>> TcpChannel::create(const Group& world, connect::Identity identity,
                                                       std::span<const Bytes> tcp_addresses,
                                                       connect::TcpListener listener) {
  if (tcp_addresses.size() != world.ranks.size())
    return Status::internal("not one TCP address for each rank");
  auto epoll = platform::Epoll::create();
  if (!epoll.ok()) return epoll.status();
  auto gate = platform::Epoll::create();
  if (!gate.ok()) return gate.status();
  ROUNDELAY_RETURN_IF_ERROR(gate->add(epoll->fd(), 0, Interest::kRead));
  auto waker = platform::EventFd::create();
  if (!waker.ok()) return waker.status();

  const std::string host = listener.tcp_address.host;
  std::unique_ptr<TcpChannel> channel(
      new TcpChannel(world.world_rank(), world.ranks.size(), std::move(identity), std::move(listener),
                     std::move(epoll).value(), std::move(gate).value(), std::move(waker).value()));
  MutexLock lock(channel->mutex_);
  for (const Bytes& bytes : tcp_addresses) {
    auto tcp_address = connect::decode_tcp_address(bytes);
    if (!tcp_address.ok()) return tcp_address.status();
    channel->links_.add_peer(*tcp_address, host);
  }
  ROUNDELAY_RETURN_IF_ERROR(channel->epoll_.add(channel->waker_.fd(), kWakerTag, Interest::kRead));
  ROUNDELAY_RETURN_IF_ERROR(channel->connections_.listen());
  return channel;
}

TcpChannel::~TcpChannel() {
  MutexLock lock(mutex_);
  shut();
}

Status TcpChannel::send(int to, ConstByteSpan message) {
  if (to < 0 || static_cast<std::size_t>(to) >= ranks_) {
    return Status::invalid("cannot send to rank " + std::to_string(to) + " of " + std::to_string(ranks_));
  }
  ROUNDELAY_RETURN_IF_ERROR(wire::check_length(message));
  MutexLock lock(mutex_);
  if (closing_) return Status::unavailable("the channel is closed");
  Status sent = links_.send(to, message);
  wake_if_received();
  return sent;
}

std::optional<Incoming> TcpChannel::receive() {
  MutexLock lock(mutex_);
  acknowledge_wake();
  std::deque<Incoming>& inbox = links_.inbox();
  if (inbox.empty() && !closed_) {
    Events events;
    const std::size_t count = epoll_.wait(events, Deadline::at(TimePoint{}));
    handle(std::span(events).first(count));
  }
  if (inbox.empty()) return std::nullopt;
  Incoming first = std::move(inbox.front());
  inbox.pop_front();
  wake_if_received();
  return first;
}

void TcpChannel::wait(Deadline deadline) { poll(Sleeper::kWaits, deadline); }

void TcpChannel::wait_polling(Deadline deadline, Duration /*polling*/) { poll(Sleeper::kPolls, deadline); }

void TcpChannel::set_polling(bool polling) {
  MutexLock lock(mutex_);
  if (polling == polling_ || closed_) return;
  set_gate(!polling);
  if (!polling) wake_if_received();
}

// An open gate wakes those who sleep at it if there are events, or a wake-up that nobody has taken.
void TcpChannel::set_gate(bool open) {
  polling_ = !open;
  static_cast<void>(gate_.change(epoll_.fd(), 0, open ? Interest::kRead : Interest::kNone));
}

bool TcpChannel::has_sleepers() const { return in_epoll_ > 0 || (at_gate_ > 0 && !polling_); }

// Waits for events and handles them; returns at once if receive() has something for this thread. It looks and
// counts as a sleeper in one go, so that who leaves a message sees it.
void TcpChannel::poll(Sleeper sleeper, Deadline deadline) {
  const bool gate = sleeper == Sleeper::kWaits;
  {
    MutexLock lock(mutex_);
    const bool received = !links_.inbox().empty() && !(gate && polling_);
    if (sleeper != Sleeper::kConnects && (received || closed_)) return;
    ++(gate ? at_gate_ : in_epoll_);
    deadline = deadline.sooner(connections_.due());
  }
  Events events;
  std::size_t count = (gate ? gate_ : epoll_).wait(events, deadline);
  if (gate && count > 0) count = epoll_.wait(events, Deadline::at(TimePoint{}));
  MutexLock lock(mutex_);
  --(gate ? at_gate_ : in_epoll_);
  if (!has_sleepers() && drain_after_waiters_) acknowledge_wake();
  if (!closed_) handle(std::span(events).first(count));
  if (connections_.windows_due().passed()) connections_.check_windows();
  if (connections_.due().passed()) connections_.drop_silent();
  wake_if_received();
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

// Drains the waker, but only when no thread sleeps: all sleeping threads must see it readable.
void TcpChannel::acknowledge_wake() {
  if (!signalled_) return;
  drain_after_waiters_ = has_sleepers();
  if (drain_after_waiters_) return;
  waker_.drain();
  signalled_ = false;
}

// Wakes a sleeping thread if there are messages: the event that brought them no longer wakes it.
void TcpChannel::wake_if_received() {
  if (!links_.inbox().empty() && has_sleepers()) signal();
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
      if (closing_) {
        result = Status::unavailable("the channel is closed");
        break;
      }
      if (const std::optional<Status> over = links_.connect(peer_rank)) {
        result = *over;
        break;
      }
      if (deadline.passed()) {
        const connect::Dial& dial = links_.peer(peer_rank).dial;
        const std::string& failure = dial.last_failure();
        result =
            Status::aborted("cannot connect to rank " + std::to_string(peer_rank) + " on " +
                            std::string(dial.host()) + " in time" + (failure.empty() ? "" : ": " + failure));
        break;
      }
    }
    poll(Sleeper::kConnects, deadline);
  }
  if (woken) wake();
  return result;
}

void TcpChannel::handle(std::span<const Event> events) {
  for (const Event& event : events) {
    if (event.tag == connect::ConnectionTable::kListenerTag) {
      connections_.accept_all();
    } else if (event.tag != kWakerTag) {
      links_.handle(event);
    }
  }
}

void TcpChannel::close(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (!std::exchange(closing_, true)) links_.say_goodbye();
  }
  while (true) {
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      acknowledge_wake();
      if (links_.all_written() || deadline.passed()) break;
    }
    poll(Sleeper::kConnects, deadline);
  }
  {
    MutexLock lock(mutex_);
    connections_.shutdown_output();
  }
  // Closing a socket with unread input resets the connection and discards output in transit. So all output
  // must be acknowledged first. No event tells that, and the loop reads input meanwhile.
  while (true) {
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      if (connections_.all_acknowledged() || deadline.passed()) {
        shut();
        return;
      }
    }
    poll(Sleeper::kConnects, Deadline::after(kAcknowledgeSlice).sooner(deadline));
  }
}

// Closes everything, and wakes all waiting threads.
void TcpChannel::shut() {
  closing_ = closed_ = true;
  set_gate(true);
  links_.clear();
  signal();
}

}  // namespace roundelay::channel
