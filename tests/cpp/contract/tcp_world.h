// Ranks that talk over TCP on this machine.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "channel/tcp/tcp_channel.h"

namespace roundelay::testing {

wire::Hello hello_of(int rank);

// A world before its channels are made: all ranks listen and have all TCP addresses.
struct TcpWorld {
  explicit TcpWorld(int size);

  // Makes the channel of a rank. Call it once per rank, because it takes the rank's listener. Throws on
  // errors.
  std::unique_ptr<channel::TcpChannel> channel(int rank) { return channel(rank, hello_of(rank)); }
  std::unique_ptr<channel::TcpChannel> channel(int rank, wire::Hello identity, const trust::Key& secret = {});

  std::vector<std::optional<connect::TcpListener>> listeners;
  std::vector<Bytes> tcp_addresses;
};

// A second process that runs rank 1 of a world of two. The destructor kills it if it still runs, and waits
// for it.
class ChildRank {
 public:
  using Body = std::function<void(channel::TcpChannel&)>;
  explicit ChildRank(const Body& body);
  ~ChildRank();
  ChildRank(const ChildRank&) = delete;
  ChildRank& operator=(const ChildRank&) = delete;

  std::unique_ptr<channel::TcpChannel> parent;  // rank 0
  void signal(int number) const;

 private:
  pid_t process_ = -1;
};

}  // namespace roundelay::testing
