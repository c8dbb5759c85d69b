// The first frame on a connection, both ways: proof that the writer belongs to this job, and its Hello.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "channel/tcp/tcp_address.h"
#include "wire/messages.h"

namespace roundelay::channel {

inline constexpr std::size_t kLongestGreeting = 4096;

// `token` and `to` are of the one greeted: an address may lead to another rank than the one that was meant.
Bytes encode_greeting(const Token& token, int to, const wire::Hello& hello);

struct Greeting {
  int from = -1;
  Result<wire::Hello> hello;  // not ok: the job's own, but another build
};

// Empty: a stranger, or someone who meant another rank.
std::optional<Greeting> decode_greeting(ConstByteSpan bytes, const Token& own_token, int own_rank);

// OK if both are one build with one configuration; else what differs, the same text on both sides.
Status compare_hellos(const wire::Hello& a, const wire::Hello& b);

}  // namespace roundelay::channel
