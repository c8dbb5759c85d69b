// One peer of a rank: how to reach it, its connection, and what is queued for it.
#pragma once

#include "base/status.h"
#include "connect/connection_table.h"
#include "connect/dial.h"
#include "trust/trust.h"
#include "wire/frames.h"

namespace roundelay::channel {

struct TcpPeer {
  enum class State : unsigned char {
    kIdle,      // neither side has connected
    kDialling,  // this rank tries the addresses, one after another
    kOpen,      // a connection is established
    kLost,      // it never comes back; `lost` has the reason
    kLeft,      // it has said goodbye
  };
  State state = State::kIdle;
  trust::Key key{};  // of connections to it
  connect::Dial dial;
  connect::Connection* connection = nullptr;  // this rank's attempt, or the established connection
  connect::Connection* parked = nullptr;      // see Connection::State::kParked
  wire::SendQueue queue{};                    // messages that no socket has taken yet
  Status lost{};
};

}  // namespace roundelay::channel
