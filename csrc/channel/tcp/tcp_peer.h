// One peer of a rank: how to reach it, its connection, and what is queued for it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/frames.h"
#include "channel/tcp/connection_table.h"
#include "channel/tcp/tcp_address.h"

namespace roundelay::channel {

struct TcpPeer {
  enum class State : unsigned char {
    kIdle,      // neither side has connected
    kDialling,  // this rank tries the endpoints, one after another
    kOpen,      // a connection is established
    kLost,      // it never comes back; `lost` has the reason
    kLeft,      // it has said goodbye
  };
  State state = State::kIdle;
  trust::Key key{};  // of connections to it
  std::string host;
  std::vector<platform::Endpoint> endpoints;
  std::size_t next_endpoint = 0;
  static constexpr int kMostRepeats = 20;
  int repeats = 0;                   // of attempts at an endpoint that was reached, but hung up
  std::string last_failure;          // the reason why the endpoint before did not work
  Connection* connection = nullptr;  // this rank's attempt, or the established connection
  Connection* parked = nullptr;      // see Connection::State::kParked
  SendQueue queue;                   // messages that no socket has taken yet
  Status lost;
};

}  // namespace roundelay::channel
