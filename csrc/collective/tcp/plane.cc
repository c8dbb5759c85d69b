#include "collective/tcp/plane.h"

#include <array>
#include <cstring>

#include "collective/tcp/tcp_transport.h"
#include "trust/trust.h"

namespace roundelay::collective::tcp {
namespace {

// Returns the first number of the row that this one is in.
constexpr StreamNumber first_of(StreamNumber stream) { return stream - stream % kMostStreams; }

// Returns the first number of a group's streams: the same on all members, and no other group has it. `nth`:
// of the transports of this group.
StreamNumber first_for(const Group& group, std::uint64_t nth) {
  const std::array<std::uint64_t, 2> numbers = {group.id, nth};
  const trust::Mac mac =
      trust::mac_of({}, "stream", {std::as_bytes(std::span(group.ranks)), std::as_bytes(std::span(numbers))});
  StreamNumber stream = 0;
  std::memcpy(&stream, mac.data(), sizeof stream);
  return first_of(stream | kMostStreams);  // 0 is the control channel's
}

}  // namespace

TcpPlane::TcpPlane(platform::Epoll epoll, platform::EventFd waker, connect::Identity identity,
                   connect::TcpListener listener, const std::vector<connect::TcpAddress>& peers,
                   const Options& options)
    : streams_(options.streams),
      epoll_(std::move(epoll)),
      waker_(std::move(waker)),
      connector_(epoll_, std::move(listener.socket), std::move(identity), listener.tcp_address, peers,
                 options.spreads) {}

Result<std::shared_ptr<TcpPlane>> TcpPlane::create(connect::Identity identity, connect::TcpListener listener,
                                                   std::span<const Bytes> addresses, const Options& options) {
  std::vector<connect::TcpAddress> peers;
  for (const Bytes& bytes : addresses) {
    auto address = connect::decode_tcp_address(bytes);
    if (!address.ok()) return address.status();
    peers.push_back(std::move(address).value());
  }
  auto epoll = platform::Epoll::create();
  if (!epoll.ok()) return epoll.status();
  auto waker = platform::EventFd::create();
  if (!waker.ok()) return waker.status();
  std::shared_ptr<TcpPlane> plane(new TcpPlane(std::move(epoll).value(), std::move(waker).value(),
                                               std::move(identity), std::move(listener), peers, options));
  ROUNDELAY_RETURN_IF_ERROR(
      plane->epoll_.add(plane->waker_.fd(), kWakerTag, platform::Epoll::Interest::kRead));
  ROUNDELAY_RETURN_IF_ERROR(plane->connector_.listen());
  plane->thread_ = std::thread([raw = plane.get()] { raw->run(); });
  return plane;
}

TcpPlane::~TcpPlane() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  waker_.signal();
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<TcpTransport>> TcpPlane::transport(const Group& group) {
  auto ends = StreamEnds::create();
  if (!ends.ok()) return ends.status();
  StreamNumber first = 0;
  {
    MutexLock lock(mutex_);
    first = first_for(group, made_[{group.id, group.ranks}]++);
    transports_.emplace(first, *ends);
    for (StreamEnd& end : early_) {
      if (first_of(end.stream) == first) (*ends)->put(std::move(end));
    }
    std::erase_if(early_, [&](const StreamEnd& end) { return first_of(end.stream) == first; });
  }
  return TcpTransport::create(shared_from_this(), group, first, std::move(ends).value());
}

void TcpPlane::dial(StreamNumber stream, int rank) {
  MutexLock lock(mutex_);
  dials_.emplace_back(stream, rank);
  waker_.signal();
}

void TcpPlane::leave(StreamNumber first) {
  MutexLock lock(mutex_);
  transports_.erase(first);
  left_.insert(first);
}

// Gives a connection to the transport of its stream, or keeps it until that is made.
void TcpPlane::deliver(StreamEnd end) {
  MutexLock lock(mutex_);
  const auto found = transports_.find(first_of(end.stream));
  if (found != transports_.end()) {
    found->second->put(std::move(end));
  } else if (!left_.contains(first_of(end.stream))) {
    early_.push_back(std::move(end));
  }
}

std::vector<std::pair<StreamNumber, int>> TcpPlane::take_dials() {
  MutexLock lock(mutex_);
  return std::exchange(dials_, {});
}

void TcpPlane::run() {
  std::array<platform::Epoll::Event, platform::Epoll::kMostEvents> events;
  while (true) {
    const std::size_t count = epoll_.wait(events, connector_.due());
    for (const platform::Epoll::Event& event : std::span(events).first(count)) {
      if (event.tag == kWakerTag) {
        waker_.drain();
      } else {
        connector_.handle(event);
      }
    }
    if (connector_.due().passed()) connector_.drop_silent();
    for (const auto& [stream, rank] : take_dials()) connector_.dial(stream, rank);
    for (StreamEnd& end : connector_.take_ends()) deliver(std::move(end));
    MutexLock lock(mutex_);
    if (stopping_) return;
  }
}

}  // namespace roundelay::collective::tcp
