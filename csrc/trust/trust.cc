#include "trust/trust.h"

#include <blake2/blake2.h>
#include <sys/random.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/log.h"

namespace roundelay::trust {
namespace {

std::atomic<std::uint64_t> dropped{0};

void add(blake2b_state& state, ConstByteSpan part) {
  std::array<std::uint8_t, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(part.size()) >> (8 * i));
  }
  blake2b_update(&state, length.data(), length.size());
  blake2b_update(&state, part.data(), part.size());
}

std::string_view label_of(Role role) {
  switch (role) {
    case Role::kAnswer:
      return "answer";
    case Role::kCall:
      return "call";
    case Role::kWelcome:
      break;
  }
  return "welcome";
}

ConstByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

Mac mac_of(const Key& key, std::string_view label, std::initializer_list<ConstByteSpan> parts) {
  Mac mac{};
  blake2b_state state;
  // These sizes are right, so none of the calls fails.
  blake2b_init_key(&state, mac.size(), key.data(), key.size());
  add(state, bytes_of(label));
  for (const ConstByteSpan part : parts) add(state, part);
  blake2b_final(&state, mac.data(), mac.size());
  return mac;
}

bool same_bytes(ConstByteSpan a, ConstByteSpan b) {
  if (a.size() != b.size()) return false;
  // Volatile: the compiler must not leave the loop at the first difference.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | std::to_integer<unsigned char>(a[i] ^ b[i]));
  }
  return difference == 0;
}

Result<Nonce> new_nonce() {
  Nonce nonce{};
  std::size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = ::getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got < 0 && errno != EINTR)
      return Status::unavailable("getrandom: " + std::string(std::strerror(errno)));
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return nonce;
}

Mac proof_of(const Key& key, Role role, std::string_view purpose, const Challenge& challenge,
             ConstByteSpan body) {
  return mac_of(key, label_of(role), {bytes_of(purpose), challenge.caller, challenge.answerer, body});
}

std::uint64_t strangers_dropped() { return dropped.load(std::memory_order_relaxed); }

void count_stranger(std::string_view why) {
  if (dropped.fetch_add(1, std::memory_order_relaxed) > 0) return;
  log(LogLevel::kWarning, "dropped a stranger: " + std::string(why) +
                              "; the job goes on, and stats()[\"strangers\"] counts any others");
}

}  // namespace roundelay::trust
