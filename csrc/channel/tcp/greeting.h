// The first frame in each direction of a connection: it proves that the sender belongs to this job, and
// carries its Hello.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "channel/tcp/tcp_address.h"
#include "wire/messages.h"

namespace roundelay::channel {

inline constexpr std::size_t kLongestGreeting = 4096;

// Makes a greeting. `token` and `to` are the receiver's: an address may lead to another rank than intended.
Bytes encode_greeting(const Token& token, int to, const wire::Hello& hello);

// A greeting of this job.
struct Greeting {
  int from = -1;
  Result<wire::Hello> hello;  // not ok: the sender is another build of Roundelay
};

// Parses a greeting. Returns nothing if the sender is a stranger or means another rank.
std::optional<Greeting> decode_greeting(ConstByteSpan bytes, const Token& own_token, int own_rank);

// Returns OK if both ranks have the same build and configuration; otherwise the difference, with the same
// text on both ranks.
Status compare_hellos(const wire::Hello& a, const wire::Hello& b);
// Compares the sender of a greeting with this rank. Errors: as compare_hellos(), or another build's greeting.
Status check_identity(const wire::Hello& own, const Greeting& greeting);

}  // namespace roundelay::channel
