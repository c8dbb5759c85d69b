// The first frames of a connection, by the protocol of trust/trust.h. They prove that both ends belong to
// this job, and carry each end's Hello:
//   1. the dialler's opening      2. the acceptor's answer
//   3. the dialler's greeting     4. the acceptor's greeting
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "connect/tcp_address.h"
#include "trust/trust.h"
#include "wire/messages.h"

namespace roundelay::connect {

inline constexpr std::size_t kLongestGreeting = 4096;

// Returns the key of connections to the rank with this token: an address may lead to another rank than
// intended. Without a secret the token alone makes the key.
trust::Key connection_key(const trust::Key& secret, const Token& token);

// The state of a connection before the greetings: the key, and both ends' challenges.
struct Handshake {
  trust::Key key{};
  int dialler = -1;
  int acceptor = -1;
  trust::Challenge challenge{};
};

Bytes encode_opening(const Handshake& handshake);
// Fills in the dialler and its nonce. Returns false if the sender is a stranger or means another rank.
bool decode_opening(ConstByteSpan bytes, Handshake& handshake);

Bytes encode_answer(const Handshake& handshake);
// Fills in the acceptor's nonce. Returns false if the sender does not know the key.
bool decode_answer(ConstByteSpan bytes, Handshake& handshake);

// Makes the greeting of one end. `role`: kCall for the dialler, kWelcome for the acceptor.
Bytes encode_greeting(const Handshake& handshake, trust::Role role, const wire::Hello& hello);

// A greeting of this job.
struct Greeting {
  int from = -1;
  Result<wire::Hello> hello;  // not ok: the sender is another build of Roundelay
};

// Parses a greeting. Returns nothing if the sender does not know the key.
std::optional<Greeting> decode_greeting(ConstByteSpan bytes, const Handshake& handshake, trust::Role role);

// Returns OK if both ranks have the same build and configuration; otherwise the difference, with the same
// text on both ranks.
Status compare_hellos(const wire::Hello& a, const wire::Hello& b);
// Compares the sender of a greeting with this rank. Errors: as compare_hellos(), or another build's greeting.
Status check_identity(const wire::Hello& own, const Greeting& greeting);

}  // namespace roundelay::connect
