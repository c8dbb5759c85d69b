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

// The most bytes of a message that one stream carries alone.
constexpr std::size_t kMostWhole = std::size_t{256} << 10;

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(std::shared_ptr<TcpPlane> plane,
                                                           const Group& group, StreamNumber first,
                                                           std::shared_ptr<StreamEnds> ends) {
  auto epoll = platform::Epoll::create();
  if (!epoll.ok()) return epoll.status();
  ROUNDELAY_RETURN_IF_ERROR(epoll->add(ends->doorbell(), kDoorbellTag, Interest::kRead));
  return std::make_unique<TcpTransport>(std::move(plane), group, first, std::move(ends),
                                        std::move(epoll).value());
}

TcpTransport::TcpTransport(std::shared_ptr<TcpPlane> plane, const Group& group, StreamNumber first,
                           std::shared_ptr<StreamEnds> ends, platform::Epoll epoll)
    : plane_(std::move(plane)),
      group_(group),
      first_(first),
      ends_(std::move(ends)),
      epoll_(std::move(epoll)),
      peers_(group.ranks.size()) {
  for (Peer& peer : peers_) {
    peer.out.ends.resize(plane_->streams());
    peer.in.ends.resize(plane_->streams());
  }
}

TcpTransport::~TcpTransport() { plane_->leave(first_); }

TcpTransport::Place TcpTransport::Place::of(std::uint64_t tag) {
  const std::size_t both = (tag - 1) / 2;
  return {both / kMostStreams, both % kMostStreams, (tag - 1) % 2 == 1};
}

template <typename Post>
Result<TransferId> TcpTransport::post(int peer, bool sends, std::size_t bytes, const Post& post_part) {
  const std::size_t parts = bytes > kMostWhole ? plane_->streams() : 1;
  const TransferId id = slots_.acquire();
  slots_[id] = {.peer = static_cast<std::size_t>(peer), .sends = sends, .parts_left = parts, .asked = false};
  std::size_t offset = 0;
  for (std::size_t number = 0; number < parts; ++number) {
    const std::size_t end = bytes / parts * (number + 1) + std::min(number + 1, bytes % parts);
    post_part(id, Place{slots_[id].peer, number, !sends}, offset, end - offset);
    offset = end;
  }
  return id;
}

Result<TransferId> TcpTransport::send(int peer, ConstByteSpan data, int tag) {
  Direction<OutStream>& out = peers_[static_cast<std::size_t>(peer)].out;
  if (!out.error.ok()) return out.error;
  return post(
      peer, true, data.size(), [&](TransferId id, const Place& place, std::size_t offset, std::size_t bytes) {
        End<OutStream>& end = out.ends[place.number];
        if (end.stream.ended()) conclude(place, out, Status::aborted(kClosed));
        if (!out.error.ok()) return;
        const Status queued = end.stream.send(id, data.subspan(offset, bytes), label(tag, data.size()));
        if (!queued.ok()) {
          conclude(place, out, queued);
        } else if (end.stream.connected()) {
          use_out(place, false);
        } else if (!std::exchange(end.dialled, true)) {
          plane_->dial(first_ + place.number, group_.ranks[place.peer]);
        }
      });
}

Result<TransferId> TcpTransport::receive(int peer, ByteSpan data, int tag) {
  Direction<InStream>& in = peers_[static_cast<std::size_t>(peer)].in;
  if (!in.error.ok()) return in.error;
  return post(peer, false, data.size(),
              [&](TransferId id, const Place& place, std::size_t offset, std::size_t bytes) {
                InStream& stream = in.ends[place.number].stream;
                if (!in.error.ok()) return;
                Status posted =
                    stream.receive(id, data.subspan(offset, bytes), label(tag, data.size()), over_);
                if (posted.ok() && stream.connected()) posted = stream.write_notices();
                conclude(place, in, posted);
              });
}

Label TcpTransport::label(int tag, std::size_t message_bytes) const {
  Label label{static_cast<std::uint64_t>(tag), mark_};
  if (mark_.agrees_by_pair()) label.mark.bytes = message_bytes;
  return label;
}

Result<bool> TcpTransport::test(TransferId id) {
  if (slots_[id].parts_left > 0) progress();
  Slot& slot = slots_[id];
  if (slot.parts_left == 0) {
    if (slot.asked) --untested_;
    slots_.release(id);
    return true;
  }
  const Status& error = slot.sends ? peers_[slot.peer].out.error : peers_[slot.peer].in.error;
  if (!error.ok()) return error;
  slot.asked = true;
  return false;
}

Nap TcpTransport::nap(Backoff& backoff) {
  if (untested_ > 0) return {};  // a test of another transfer has ended it, and no descriptor tells
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
  const Place place = Place::of(event.tag);
  if (place.incoming) {
    use_in(place, event);
  } else {
    use_out(place, event.readable);
  }
}

// Writes, and reads before it if the stream has input.
void TcpTransport::use_out(const Place& place, bool reads) {
  Direction<OutStream>& out = peers_[place.peer].out;
  OutStream& stream = out.ends[place.number].stream;
  if (out.error.ok() && reads) conclude(place, out, stream.read_notices());
  if (out.error.ok() && stream.connected()) conclude(place, out, stream.write(over_));
}

void TcpTransport::use_in(const Place& place, const platform::Epoll::Event& event) {
  Direction<InStream>& in = peers_[place.peer].in;
  InStream& stream = in.ends[place.number].stream;
  if (event.readable && in.error.ok()) conclude(place, in, stream.read(over_));
  if (event.writable && in.error.ok() && stream.connected()) conclude(place, in, stream.write_notices());
}

// Called after each use of a stream: counts the parts that are over, closes the direction after an error, and
// watches the stream for what it waits for.
template <typename Stream>
void TcpTransport::conclude(const Place& place, Direction<Stream>& direction, const Status& result) {
  for (const TransferId id : over_) {
    if (--slots_[id].parts_left == 0 && slots_[id].asked) ++untested_;
  }
  over_.clear();
  if (!result.ok()) {
    const Status error = failure(place.peer, result);
    const bool differs = result.code() == StatusCode::kMismatch;
    // Who only receives would not see that its sends cannot match.
    if (differs) {
      stop_peer(peers_[place.peer], error, differs);
    } else {
      stop(direction, error, differs);
    }
    return;
  }
  End<Stream>& end = direction.ends[place.number];
  if (!end.stream.connected()) return;
  const bool out = end.stream.wants_output(), in = end.stream.wants_input();
  const Interest wanted = out && in ? Interest::kReadWrite
                          : out     ? Interest::kWrite
                          : in      ? Interest::kRead
                                    : Interest::kNone;
  if (std::exchange(end.interest, wanted) == wanted) return;
  // Cannot fail, because epoll has the descriptor.
  static_cast<void>(epoll_.change(end.stream.fd(), place.tag(), wanted));
}

// Ends a direction: nothing of it is read or written any more. Its connections stay open if calls differ: a
// peer that saw them end would take that for the cause, before it hears of the other call.
template <typename Stream>
void TcpTransport::stop(Direction<Stream>& direction, const Status& error, bool differs) {
  if (!direction.error.ok()) return;
  direction.error = error;
  direction.stays_open = differs;
  for (End<Stream>& end : direction.ends) {
    if (!differs) {
      end.stream.close();
    } else if (end.stream.connected()) {
      epoll_.remove(end.stream.fd());
    }
  }
}

void TcpTransport::stop_peer(Peer& peer, const Status& error, bool differs) {
  stop(peer.out, error, differs);
  stop(peer.in, error, differs);
}

// Takes the connections that the plane has made.
void TcpTransport::take_ends() {
  for (StreamEnd& end : ends_->take()) {
    const auto found = std::ranges::find(group_.ranks, end.rank);
    const std::size_t number = end.stream - first_;
    if (found == group_.ranks.end() || number >= plane_->streams()) continue;
    const Place place{static_cast<std::size_t>(found - group_.ranks.begin()), number, end.incoming};
    Peer& peer = peers_[place.peer];
    if (!end.socket.ok()) {
      conclude(place, peer.out, end.socket.status());
    } else if (end.incoming) {
      connect(place, peer.in, std::move(end.socket).value());
      use_in(place, {.writable = true});
    } else {
      connect(place, peer.out, std::move(end.socket).value());
      use_out(place, false);
    }
  }
}

template <typename Stream>
void TcpTransport::connect(const Place& place, Direction<Stream>& direction, platform::Socket socket) {
  End<Stream>& end = direction.ends[place.number];
  if (end.stream.connected() || end.stream.ended()) return;
  if (direction.stays_open) return end.stream.connect(std::move(socket));  // as those that came before
  if (!direction.error.ok()) return;
  // A stopped process is no loss: its connection waits. The control channel notices hosts that are lost.
  socket.set_window_closed(true);
  end.stream.connect(std::move(socket));
  const Status watched = epoll_.add(end.stream.fd(), place.tag(), end.interest);
  if (!watched.ok()) conclude(place, direction, watched);
}

Status TcpTransport::failure(std::size_t peer, const Status& cause) const {
  if (cause.code() == StatusCode::kMismatch) return differs_from(group_.ranks[peer], cause.message());
  return Status::aborted("the connection to rank " + std::to_string(group_.ranks[peer]) +
                         " failed: " + cause.message());
}

void TcpTransport::give_up(const Status& cause) {
  const bool differs = cause.code() == StatusCode::kMismatch;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    stop_peer(peers_[peer], failure(peer, Status::aborted("given up")), differs);
}

}  // namespace roundelay::collective::tcp
