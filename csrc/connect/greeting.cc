#include "connect/greeting.h"

#include <cstring>
#include <string>

#include "base/config.h"
#include "wire/codec.h"

namespace roundelay::connect {
namespace {

constexpr std::array<char, 4> kMagic = {'R', 'D', 'L', '2'};
constexpr std::string_view kPurpose = "channel";

// Each frame has one of these shapes; a greeting's Hello follows.
struct Opening {
  std::array<char, 4> magic;
  std::int32_t acceptor;
  std::int32_t dialler;
  trust::Nonce nonce;
};
struct Answer {
  std::array<char, 4> magic;
  trust::Nonce nonce;
  trust::Mac proof;
};
struct GreetingHead {
  std::array<char, 4> magic;
  trust::Mac proof;
};

template <typename T>
ConstByteSpan bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
std::optional<T> read(ConstByteSpan bytes) {
  T value;
  if (bytes.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  if (value.magic != kMagic) return std::nullopt;
  return value;
}

// The ranks are part of every proof: what one pair has said means nothing to another.
trust::Mac proof_of(const Handshake& handshake, trust::Role role, ConstByteSpan body) {
  const std::array<std::int32_t, 2> ranks = {handshake.dialler, handshake.acceptor};
  Bytes with_ranks(sizeof ranks + body.size());
  std::memcpy(with_ranks.data(), ranks.data(), sizeof ranks);
  std::copy(body.begin(), body.end(), with_ranks.begin() + sizeof ranks);
  return trust::proof_of(handshake.key, role, kPurpose, handshake.challenge, with_ranks);
}

std::string both(const wire::Hello& low, const std::string& of_low, const wire::Hello& high,
                 const std::string& of_high) {
  return "rank " + std::to_string(low.rank) + " has " + of_low + ", rank " + std::to_string(high.rank) +
         " has " + of_high;
}

}  // namespace

trust::Key connection_key(const trust::Key& secret, const Token& token) {
  return trust::mac_of(secret, "channel key", {token});
}

Bytes encode_opening(const Handshake& handshake) {
  const Opening opening{kMagic, handshake.acceptor, handshake.dialler, handshake.challenge.caller};
  const ConstByteSpan bytes = bytes_of(opening);
  return {bytes.begin(), bytes.end()};
}

bool decode_opening(ConstByteSpan bytes, Handshake& handshake) {
  const auto opening = read<Opening>(bytes);
  if (!opening || opening->acceptor != handshake.acceptor) return false;
  handshake.dialler = opening->dialler;
  handshake.challenge.caller = opening->nonce;
  return true;
}

Bytes encode_answer(const Handshake& handshake) {
  const Answer answer{kMagic, handshake.challenge.answerer, proof_of(handshake, trust::Role::kAnswer, {})};
  const ConstByteSpan bytes = bytes_of(answer);
  return {bytes.begin(), bytes.end()};
}

bool decode_answer(ConstByteSpan bytes, Handshake& handshake) {
  const auto answer = read<Answer>(bytes);
  if (!answer) return false;
  handshake.challenge.answerer = answer->nonce;
  return trust::same_bytes(answer->proof, proof_of(handshake, trust::Role::kAnswer, {}));
}

Bytes encode_greeting(const Handshake& handshake, trust::Role role, const wire::Hello& hello) {
  const Bytes body = wire::encode(hello);
  const GreetingHead head{kMagic, proof_of(handshake, role, body)};
  Bytes out(sizeof head + body.size());
  std::memcpy(out.data(), &head, sizeof head);
  std::memcpy(out.data() + sizeof head, body.data(), body.size());
  return out;
}

std::optional<Greeting> decode_greeting(ConstByteSpan bytes, const Handshake& handshake, trust::Role role) {
  if (bytes.size() < sizeof(GreetingHead)) return std::nullopt;
  const auto head = read<GreetingHead>(bytes.first(sizeof(GreetingHead)));
  const ConstByteSpan body = bytes.subspan(sizeof(GreetingHead));
  if (!head || !trust::same_bytes(head->proof, proof_of(handshake, role, body))) return std::nullopt;
  const int from = role == trust::Role::kCall ? handshake.dialler : handshake.acceptor;
  auto message = wire::decode(body);
  if (!message.ok()) return Greeting{from, message.status()};
  const auto* hello = std::get_if<wire::Hello>(&*message);
  if (hello == nullptr || hello->rank != from) {
    return Greeting{from, Status::internal("the first message is no Hello of that rank")};
  }
  return Greeting{from, *hello};
}

Status compare_hellos(const wire::Hello& a, const wire::Hello& b) {
  const wire::Hello& low = a.rank < b.rank ? a : b;
  const wire::Hello& high = a.rank < b.rank ? b : a;
  if (low.version != high.version) {
    return Status::aborted("ranks run different builds of Roundelay: " +
                           both(low, "\"" + low.version + "\"", high, "\"" + high.version + "\"") +
                           "; install the same build on every machine");
  }
  if (low.settings != high.settings) {
    const auto [of_low, of_high] = different_settings(low.settings, high.settings);
    return Status::aborted("ranks have different configurations: " + both(low, of_low, high, of_high) +
                           "; set the same ROUNDELAY_ and HOROVOD_ variables on every rank");
  }
  if (low.generation != high.generation) {
    return Status::aborted("ranks are in different inits: " +
                           both(low, "number " + std::to_string(low.generation), high,
                                "number " + std::to_string(high.generation)) +
                           "; every rank must call init() and shutdown() equally often");
  }
  return {};
}

Status check_identity(const wire::Hello& own, const Greeting& greeting) {
  if (greeting.hello.ok()) return compare_hellos(own, *greeting.hello);
  return Status::aborted("rank " + std::to_string(own.rank) + " (\"" + own.version +
                         "\") cannot read the greeting of rank " + std::to_string(greeting.from) +
                         ", which runs another build: " + greeting.hello.status().message());
}

}  // namespace roundelay::connect
