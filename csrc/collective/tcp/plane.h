// The data plane over TCP of one init: its thread makes the connections of all groups' transports. It sleeps
// while there are none to make. The bytes are moved by those who wait for them (TcpTransport).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/group.h"
#include "base/status.h"
#include "collective/tcp/connector.h"
#include "collective/tcp/stream_ends.h"
#include "connect/greeter.h"
#include "connect/tcp_address.h"
#include "platform/tcp/epoll.h"

namespace roundelay::collective::tcp {

class TcpTransport;

// Thread-safe. Transports share its ownership.
class TcpPlane : public std::enable_shared_from_this<TcpPlane> {
 public:
  struct Options {
    std::size_t streams = 1;  // of each member to another one, up to kMostStreams; the same on all ranks
    bool spreads = false;     // the streams to a rank take its addresses in turn
  };
  // `addresses`: TcpListener::address_bytes() of the planes of all ranks, by rank. Errors: kInternal (an
  // address is unreadable), kUnavailable (out of descriptors).
  static Result<std::shared_ptr<TcpPlane>> create(connect::Identity identity, connect::TcpListener listener,
                                                  std::span<const Bytes> addresses, const Options& options);
  ~TcpPlane();

  // Makes the transport of a group. Members make the transports of a group (id and ranks) in the same order.
  // Does not wait for the peers: a connection is made when a member sends to another for the first time.
  // Errors: kUnavailable (out of descriptors).
  Result<std::unique_ptr<TcpTransport>> transport(const Group& group) EXCLUDES(mutex_);

  [[nodiscard]] std::size_t streams() const { return streams_; }
  // For transports: starts to connect to a rank as the sender of a stream. The result comes as a StreamEnd.
  void dial(StreamNumber stream, int rank) EXCLUDES(mutex_);
  // For transports: drops what comes for these streams from now on.
  void leave(StreamNumber first) EXCLUDES(mutex_);

 private:
  TcpPlane(platform::Epoll epoll, platform::EventFd waker, connect::Identity identity,
           connect::TcpListener listener, const std::vector<connect::TcpAddress>& peers,
           const Options& options);
  static constexpr std::uint64_t kWakerTag = 0;  // the other tags are the connector's

  void run();
  std::vector<std::pair<StreamNumber, int>> take_dials() EXCLUDES(mutex_);
  void deliver(StreamEnd end) EXCLUDES(mutex_);

  const std::size_t streams_;
  platform::Epoll epoll_;
  const platform::EventFd waker_;
  Connector connector_;  // only the thread uses it
  std::thread thread_;

  Mutex mutex_;
  std::vector<std::pair<StreamNumber, int>> dials_ GUARDED_BY(mutex_);
  // By the first of their streams' numbers.
  std::map<StreamNumber, std::shared_ptr<StreamEnds>> transports_ GUARDED_BY(mutex_);
  std::set<StreamNumber> left_ GUARDED_BY(mutex_);
  std::vector<StreamEnd> early_ GUARDED_BY(mutex_);  // of streams whose transport is not made yet
  // The number of transports, by the ids and ranks of their groups.
  std::map<std::pair<ProcessSetId, std::vector<int>>, std::uint64_t> made_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace roundelay::collective::tcp
