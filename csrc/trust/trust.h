// The job's secret, and what it proves. python/roundelay/_internal/trust.py has the same protocol;
// vectors.txt has results that both must give.
//
// A MAC is keyed BLAKE2b (third_party/blake2) of 32 bytes over a label and parts, each after its length (8
// bytes, little-endian). A connection begins with a challenge in each direction, so that nothing that was
// heard before helps:
//   1. caller:   its nonce
//   2. answerer: its nonce, and a proof as kAnswer over no body
//   3. caller:   a body, and a proof as kCall over it
//   4. answerer: a body, and a proof as kWelcome over it (where it has something to say)
// A proof is the MAC with the role as label over the purpose, both nonces and the body. The purpose says what
// the connection is for and between whom, so that no proof fits elsewhere.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::trust {

inline constexpr std::size_t kTrustBytes = 32;
using Key =
    std::array<std::byte, kTrustBytes>;  // all zeros: the job has no secret, and anybody can make its MACs
using Mac = std::array<std::byte, kTrustBytes>;
using Nonce = std::array<std::byte, kTrustBytes>;

// Returns the MAC of the parts. Lengths are part of it: {"ab", "c"} and {"a", "bc"} differ.
Mac mac_of(const Key& key, std::string_view label, std::initializer_list<ConstByteSpan> parts);
// Compares in a time that does not depend on the content.
bool same_bytes(ConstByteSpan a, ConstByteSpan b);
// Returns random bytes of the kernel. Errors: kUnavailable.
Result<Nonce> new_nonce();

// The side that proves. The caller and the answerer make different MACs, so that none can be sent back.
enum class Role : unsigned char { kAnswer, kCall, kWelcome };

// One connection's challenge: what both ends have said before a proof.
struct Challenge {
  Nonce caller{};
  Nonce answerer{};
};

Mac proof_of(const Key& key, Role role, std::string_view purpose, const Challenge& challenge,
             ConstByteSpan body);

// Returns the number of connections, of this process, that strangers made and that were dropped.
std::uint64_t strangers_dropped();
// Counts one more, and warns of the first one. `why` completes "dropped a stranger: ".
void count_stranger(std::string_view why);

}  // namespace roundelay::trust
