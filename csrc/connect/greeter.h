// Sends and checks the frames with which a connection begins (greeting.h), for one rank.
#pragma once

#include <optional>
#include <utility>

#include "base/bytes.h"
#include "connect/connection_table.h"
#include "connect/greeting.h"
#include "trust/trust.h"
#include "wire/messages.h"

namespace roundelay::connect {

// A rank's introduction, and the secret with which the rank proves it.
struct Identity {
  wire::Hello hello;
  trust::Key secret{};
};

// One thread at a time may use it. A send returns false if the connection is broken: a new connection takes
// such frames all at once.
class Greeter {
 public:
  // `own` is the token of this rank's listener. `connections` outlives the greeter.
  Greeter(Identity identity, const Token& own, ConnectionTable& connections)
      : identity_(std::move(identity)), own_key_(key_for(own)), connections_(connections) {}

  [[nodiscard]] const wire::Hello& hello() const { return identity_.hello; }
  // Returns the key of connections to the rank with this token.
  [[nodiscard]] trust::Key key_for(const Token& token) const {
    return connection_key(identity_.secret, token);
  }

  // Begins a connection to the peer with this key (key_for()).
  bool send_opening(Connection& connection, const trust::Key& key);
  enum class Outcome : unsigned char { kGoesOn, kStranger, kBroken };
  // Takes the first frame of the other side and sends the next one: to an opening the answer, to an answer
  // this rank's greeting. There are `ranks` ranks.
  Outcome open(Connection& connection, ConstByteSpan bytes, std::size_t ranks);
  bool send_greeting(Connection& connection);
  // Returns nothing if the sender does not know the key.
  [[nodiscard]] std::optional<Greeting> read_greeting(const Connection& connection,
                                                      ConstByteSpan bytes) const;

 private:
  bool send(Connection& connection, ConstByteSpan frame);
  [[nodiscard]] bool check_opening(Connection& connection, ConstByteSpan bytes, std::size_t ranks) const;
  bool send_answer(Connection& connection);

  const Identity identity_;
  const trust::Key own_key_;  // of connections that peers make
  ConnectionTable& connections_;
};

}  // namespace roundelay::connect
