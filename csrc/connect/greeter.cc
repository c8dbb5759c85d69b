#include "connect/greeter.h"

namespace roundelay::connect {

using trust::Role;

bool Greeter::send(Connection& connection, ConstByteSpan frame) {
  return connections_.write_frame(connection, frame) == wire::kFrameHeader + frame.size();
}

bool Greeter::send_opening(Connection& connection, const trust::Key& key) {
  const auto nonce = trust::new_nonce();
  if (!nonce.ok()) return false;
  connection.handshake = {.key = key,
                          .dialler = identity_.hello.rank,
                          .acceptor = connection.peer,
                          .challenge = {.caller = *nonce, .answerer = {}}};
  return send(connection, encode_opening(connection.handshake));
}

Greeter::Outcome Greeter::open(Connection& connection, ConstByteSpan bytes, std::size_t ranks) {
  const bool dials = connection.peer >= 0;
  const bool good =
      dials ? decode_answer(bytes, connection.handshake) : check_opening(connection, bytes, ranks);
  if (!good) return Outcome::kStranger;
  return (dials ? send_greeting(connection) : send_answer(connection)) ? Outcome::kGoesOn : Outcome::kBroken;
}

bool Greeter::send_greeting(Connection& connection) {
  const Handshake& handshake = connection.handshake;
  const Role role = handshake.dialler == identity_.hello.rank ? Role::kCall : Role::kWelcome;
  wire::Hello hello = identity_.hello;
  hello.stream = connection.stream;
  return send(connection, encode_greeting(handshake, role, hello));
}

bool Greeter::check_opening(Connection& connection, ConstByteSpan bytes, std::size_t ranks) const {
  Handshake& handshake = connection.handshake;
  handshake.key = own_key_;
  handshake.acceptor = identity_.hello.rank;
  return decode_opening(bytes, handshake) && handshake.dialler >= 0 &&
         handshake.dialler != handshake.acceptor && static_cast<std::size_t>(handshake.dialler) < ranks;
}

bool Greeter::send_answer(Connection& connection) {
  const auto nonce = trust::new_nonce();
  if (!nonce.ok()) return false;
  connection.handshake.challenge.answerer = *nonce;
  return send(connection, encode_answer(connection.handshake));
}

std::optional<Greeting> Greeter::read_greeting(const Connection& connection, ConstByteSpan bytes) const {
  const bool by_dialler = connection.handshake.acceptor == identity_.hello.rank;
  return decode_greeting(bytes, connection.handshake, by_dialler ? Role::kCall : Role::kWelcome);
}

}  // namespace roundelay::connect
