// Makes the connections of a plane's streams: dials peers, and answers those that dial. One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/status.h"
#include "connect/connection_table.h"
#include "connect/dial.h"
#include "connect/greeter.h"
#include "platform/tcp/epoll.h"
#include "platform/tcp/socket.h"

namespace roundelay::collective::tcp {

// Names a stream of a group. The streams from one member to another have numbers in a row.
using StreamNumber = std::uint64_t;
inline constexpr std::size_t kMostStreams = 8;  // from one member to another

// A stream whose connection is made, or cannot be made.
struct StreamEnd {
  StreamNumber stream = 0;
  int rank = -1;          // of the other end
  bool incoming = false;  // the other end has dialled: it sends
  Result<platform::Socket> socket;
};

class Connector {
 public:
  // `epoll` outlives it. `own` is the address of `listener`; `peers` are those of all ranks. `spreads`: the
  // streams to a rank take its addresses in turn.
  Connector(platform::Epoll& epoll, platform::Listener listener, connect::Identity identity,
            const connect::TcpAddress& own, const std::vector<connect::TcpAddress>& peers, bool spreads);

  // Watches the listener. Errors: kUnavailable.
  Status listen() { return connections_.listen(); }
  // Starts to connect to a rank, as the sender of a stream.
  void dial(StreamNumber stream, int rank);
  void handle(const platform::Epoll::Event& event);
  // Returns when drop_silent() is due.
  [[nodiscard]] Deadline due() const { return connections_.due(); }
  void drop_silent() { connections_.drop_silent(); }
  // Returns the ends that are new since the last call.
  [[nodiscard]] std::vector<StreamEnd> take_ends() { return std::exchange(ends_, {}); }

 private:
  struct Peer {
    trust::Key key;
    connect::Dial dial;  // not begun
  };
  struct Attempt {
    StreamNumber stream;
    int rank;
    connect::Dial dial;
  };
  void try_next(Attempt attempt);
  void failed(connect::Connection& connection, const std::string& why, bool again);
  void dialled(connect::Connection& connection);
  void read(std::uint64_t id);
  void take_frame(connect::Connection& connection, ConstByteSpan bytes);
  void opened(connect::Connection& connection, ConstByteSpan bytes);
  void greeted(connect::Connection& connection, ConstByteSpan bytes);
  void greeted_by_dialler(connect::Connection& connection, const connect::Greeting& greeting);
  void refuse(connect::Connection& connection, const std::string& why);

  const bool spreads_;
  connect::ConnectionTable connections_;
  connect::Greeter greeter_;
  std::vector<Peer> peers_;
  std::map<std::uint64_t, Attempt> attempts_;  // by the id of their connection
  std::vector<StreamEnd> ends_;
};

}  // namespace roundelay::collective::tcp
