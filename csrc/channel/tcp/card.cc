#include "channel/tcp/card.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace roundelay::channel {
namespace {

constexpr std::size_t kLongestHost = 1024;
constexpr std::size_t kMostAddresses = 255;

void append(Bytes& out, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

// Takes `size` bytes off the front; false if they are not there.
bool take(ConstByteSpan& in, void* out, std::size_t size) {
  if (in.size() < size) return false;
  std::memcpy(out, in.data(), size);
  in = in.subspan(size);
  return true;
}

Result<Token> random_token() {
  Token token;
  std::size_t filled = 0;
  while (filled < token.size()) {
    const ssize_t got = ::getrandom(token.data() + filled, token.size() - filled, 0);
    if (got < 0 && errno != EINTR) return platform::errno_status("getrandom", errno);
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return token;
}

}  // namespace

std::vector<platform::Endpoint> Card::endpoints(const std::string& own_host) const {
  const bool same_host = host == own_host;
  std::vector<platform::Endpoint> ordered;
  for (const platform::Address& address : addresses) {
    if (address.loopback && same_host) ordered.push_back({address, port});
  }
  for (const platform::Address& address : addresses) {
    if (!address.loopback) ordered.push_back({address, port});
  }
  return ordered;
}

Bytes encode_card(const Card& card) {
  Bytes out;
  append(out, card.token.data(), card.token.size());
  append(out, &card.port, sizeof card.port);
  const auto host_size = static_cast<std::uint16_t>(std::min(card.host.size(), kLongestHost));
  append(out, &host_size, sizeof host_size);
  append(out, card.host.data(), host_size);
  const auto count = static_cast<std::uint8_t>(std::min(card.addresses.size(), kMostAddresses));
  append(out, &count, sizeof count);
  for (std::size_t i = 0; i < count; ++i) {
    const platform::Address& address = card.addresses[i];
    const auto flags = static_cast<std::uint8_t>((address.v6 ? 1 : 0) | (address.loopback ? 2 : 0));
    append(out, &flags, sizeof flags);
    append(out, address.octets.data(), address.width());
  }
  return out;
}

Result<Card> decode_card(ConstByteSpan bytes) {
  const Status broken = Status::internal("a rank's TCP address does not decode");
  Card card;
  std::uint16_t host_size = 0;
  std::uint8_t count = 0;
  if (!take(bytes, card.token.data(), card.token.size()) || !take(bytes, &card.port, sizeof card.port) ||
      !take(bytes, &host_size, sizeof host_size) || host_size > kLongestHost || bytes.size() < host_size) {
    return broken;
  }
  card.host.resize(host_size);
  if (!take(bytes, card.host.data(), host_size) || !take(bytes, &count, sizeof count)) return broken;
  for (int i = 0; i < count; ++i) {
    platform::Address address;
    std::uint8_t flags = 0;
    if (!take(bytes, &flags, sizeof flags) || flags > 3) return broken;
    address.v6 = (flags & 1) != 0;
    address.loopback = (flags & 2) != 0;
    if (!take(bytes, address.octets.data(), address.width())) return broken;
    card.addresses.push_back(address);
  }
  if (!bytes.empty()) return broken;
  return card;
}

Result<TcpListener> TcpListener::listen(const std::string& interfaces) {
  auto addresses = platform::local_addresses(interfaces);
  if (!addresses.ok()) return addresses.status();
  auto token = random_token();
  if (!token.ok()) return token.status();
  auto socket = platform::Listener::create();
  if (!socket.ok()) return socket.status();
  Card card{*token, socket->port(), platform::host_identity(), std::move(addresses).value()};
  return TcpListener{std::move(socket).value(), std::move(card)};
}

}  // namespace roundelay::channel
