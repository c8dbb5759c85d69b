#include "channel/tcp/greeting.h"

#include <cstring>
#include <string>

#include "base/config.h"
#include "wire/codec.h"

namespace roundelay::channel {
namespace {

constexpr std::array<char, 4> kMagic = {'R', 'D', 'L', '1'};
constexpr std::size_t kPrefix = kMagic.size() + sizeof(Token) + 2 * sizeof(std::int32_t);

std::string both(const wire::Hello& low, const std::string& of_low, const wire::Hello& high,
                 const std::string& of_high) {
  return "rank " + std::to_string(low.rank) + " has " + of_low + ", rank " + std::to_string(high.rank) +
         " has " + of_high;
}

}  // namespace

Bytes encode_greeting(const Token& token, int to, const wire::Hello& hello) {
  const Bytes body = wire::encode(hello);
  const std::array<std::int32_t, 2> ranks = {to, hello.rank};
  Bytes out(kPrefix + body.size());
  std::byte* cursor = out.data();
  std::memcpy(cursor, kMagic.data(), kMagic.size());
  std::memcpy(cursor += kMagic.size(), token.data(), token.size());
  std::memcpy(cursor += token.size(), ranks.data(), sizeof ranks);
  std::memcpy(cursor + sizeof ranks, body.data(), body.size());
  return out;
}

std::optional<Greeting> decode_greeting(ConstByteSpan bytes, const Token& own_token, int own_rank) {
  if (bytes.size() < kPrefix || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return std::nullopt;
  // Compares all bytes, so that the time does not tell how many were right.
  std::byte difference{0};
  for (std::size_t i = 0; i < own_token.size(); ++i) difference |= bytes[kMagic.size() + i] ^ own_token[i];
  std::array<std::int32_t, 2> ranks{};
  std::memcpy(ranks.data(), bytes.data() + kMagic.size() + own_token.size(), sizeof ranks);
  if (difference != std::byte{0} || ranks[0] != own_rank) return std::nullopt;

  auto message = wire::decode(bytes.subspan(kPrefix));
  if (!message.ok()) return Greeting{ranks[1], message.status()};
  const auto* hello = std::get_if<wire::Hello>(&*message);
  if (hello == nullptr || hello->rank != ranks[1]) {
    return Greeting{ranks[1], Status::internal("the first message is no Hello of that rank")};
  }
  return Greeting{ranks[1], *hello};
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

}  // namespace roundelay::channel
