#include "collective/tcp/tcp_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>

namespace roundelay::collective::tcp {
namespace {

// The longest nap: a caller's deadline may pass meanwhile.
constexpr Duration kLongestNap = std::chrono::milliseconds(100);

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(std::shared_ptr<TcpPlane> plane,
                                                           const Group& group, std::uint64_t stream,
                                                           std::shared_ptr<StreamEnds> ends) {
  auto epoll = platform::Epoll::create();
  if (!epoll.ok()) return epoll.status();
  ROUNDELAY_RETURN_IF_ERROR(epoll->add(ends->doorbell(), kDoorbellTag, Interest::kRead));
  return std::make_unique<TcpTransport>(std::move(plane), group, stream, std::move(ends),
                                        std::move(epoll).value());
}

TcpTransport::TcpTransport(std::shared_ptr<TcpPlane> plane, const Group& group, std::uint64_t stream,
                           std::shared_ptr<StreamEnds> ends, platform::Epoll epoll)
    : plane_(std::move(plane)),
      group_(group),
      stream_(stream),
      ends_(std::move(ends)),
      epoll_(std::move(epoll)),
      peers_(group.ranks.size()) {}

TcpTransport::~TcpTransport() { plane_->leave(stream_); }

TransferId TcpTransport::acquire(int peer, bool sends) {
  const TransferId id = slots_.acquire();
  slots_[id] = {.peer = peer, .sends = sends, .over = false};
  return id;
}

Result<TransferId> TcpTransport::send(int peer, ConstByteSpan data, int tag) {
  Peer& to = at(peer);
  if (!to.out.error.ok()) return to.out.error;
  const TransferId id = acquire(peer, true);
  to.out.stream.send(id, data, static_cast<Notice>(tag));
  if (to.out.stream.connected()) {
    write(static_cast<std::size_t>(peer));
  } else if (!std::exchange(to.dialled, true)) {
    plane_->dial(stream_, group_.ranks[static_cast<std::size_t>(peer)]);
  }
  return id;
}

Result<TransferId> TcpTransport::receive(int peer, ByteSpan data, int tag) {
  Peer& from = at(peer);
  if (!from.in.error.ok()) return from.in.error;
  const TransferId id = acquire(peer, false);
  Status posted = from.in.stream.receive(id, data, static_cast<Notice>(tag), over_);
  if (from.in.stream.connected()) {
    if (posted.ok()) posted = from.in.stream.write_notices();
    conclude(static_cast<std::size_t>(peer), from.in, posted);
  }
  return id;
}

Result<bool> TcpTransport::test(TransferId id) {
  if (!slots_[id].over) progress();
  Slot& slot = slots_[id];
  if (slot.over) {
    slots_.release(id);
    return true;
  }
  const Peer& peer = at(slot.peer);
  const Status& error = slot.sends ? peer.out.error : peer.in.error;
  if (!error.ok()) return error;
  return false;
}

Nap TcpTransport::nap(Backoff& backoff) {
  const Nap nap = backoff.next();
  return nap.sleeps() ? Nap::until_readable(epoll_.fd().get(), kLongestNap) : nap;
}

// Moves all transfers on.
void TcpTransport::progress() {
  std::array<platform::Epoll::Event, platform::Epoll::kMostEvents> events;
  const std::size_t count = epoll_.wait(events, Deadline::at(TimePoint{}));
  for (std::size_t i = 0; i < count; ++i) handle(events[i]);
}

void TcpTransport::handle(const platform::Epoll::Event& event) {
  if (event.tag == kDoorbellTag) return take_ends();
  const auto peer = static_cast<std::size_t>((event.tag - 1) / 2);
  if (event.tag == tag_of(peer, true)) return read(peer, event);
  End<OutStream>& out = peers_[peer].out;
  if (event.readable && out.error.ok()) conclude(peer, out, out.stream.read_notices());
  write(peer);
}

void TcpTransport::write(std::size_t peer) {
  End<OutStream>& out = peers_[peer].out;
  if (out.error.ok()) conclude(peer, out, out.stream.write(over_));
}

void TcpTransport::read(std::size_t peer, const platform::Epoll::Event& event) {
  End<InStream>& in = peers_[peer].in;
  if (event.readable && in.error.ok()) conclude(peer, in, in.stream.read(over_));
  if (event.writable && in.error.ok()) conclude(peer, in, in.stream.write_notices());
}

// Called after each use of a stream: marks the transfers that are over, ends the stream after an error, and
// watches it for what it waits for.
template <typename Stream>
void TcpTransport::conclude(std::size_t peer, End<Stream>& end, const Status& result) {
  for (const TransferId id : over_) slots_[id].over = true;
  over_.clear();
  if (!result.ok()) {
    end.error = failure(peer, result);
    end.stream.close();
    return;
  }
  const bool out = end.stream.wants_output();
  const bool in = end.stream.wants_input();
  const Interest wanted = out && in ? Interest::kReadWrite
                          : out     ? Interest::kWrite
                          : in      ? Interest::kRead
                                    : Interest::kNone;
  if (std::exchange(end.interest, wanted) == wanted) return;
  constexpr bool kIncoming = std::is_same_v<Stream, InStream>;
  // Cannot fail, because epoll has the descriptor.
  static_cast<void>(epoll_.change(end.stream.fd(), tag_of(peer, kIncoming), wanted));
}

// Takes the connections that the plane has made.
void TcpTransport::take_ends() {
  for (StreamEnd& end : ends_->take()) {
    const auto found = std::ranges::find(group_.ranks, end.rank);
    if (found == group_.ranks.end()) continue;
    const auto peer = static_cast<std::size_t>(found - group_.ranks.begin());
    if (!end.socket.ok()) {
      conclude(peer, peers_[peer].out, end.socket.status());
    } else if (end.incoming) {
      connect(peer, peers_[peer].in, std::move(end.socket).value());
      if (peers_[peer].in.error.ok()) conclude(peer, peers_[peer].in, peers_[peer].in.stream.write_notices());
    } else {
      connect(peer, peers_[peer].out, std::move(end.socket).value());
      write(peer);
    }
  }
}

template <typename Stream>
void TcpTransport::connect(std::size_t peer, End<Stream>& end, platform::Socket socket) {
  if (!end.error.ok() || end.stream.connected()) return;  // given up, or a second connection: it is closed
  // A stopped process is no loss: its connection waits. The control channel notices hosts that are lost.
  socket.set_window_closed(true);
  end.stream.connect(std::move(socket));
  const Status watched =
      epoll_.add(end.stream.fd(), tag_of(peer, std::is_same_v<Stream, InStream>), end.interest);
  if (!watched.ok()) conclude(peer, end, watched);
}

Status TcpTransport::failure(std::size_t peer, const Status& cause) const {
  return Status::aborted("the connection to rank " + std::to_string(group_.ranks[peer]) +
                         " failed: " + cause.message());
}

void TcpTransport::give_up() {
  const Status cause = Status::aborted("given up");
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer].out.error.ok()) conclude(peer, peers_[peer].out, cause);
    if (peers_[peer].in.error.ok()) conclude(peer, peers_[peer].in, cause);
  }
}

}  // namespace roundelay::collective::tcp
