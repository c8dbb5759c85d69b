#include "platform/tcp/prefix.h"

#include <arpa/inet.h>

#include <charconv>
#include <string>

namespace roundelay::platform {

std::optional<Prefix> Prefix::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string address(text.substr(0, slash));
  Prefix prefix;
  prefix.begin.v6 = address.find(':') != std::string::npos;
  const int family = prefix.begin.v6 ? AF_INET6 : AF_INET;
  if (::inet_pton(family, address.c_str(), prefix.begin.octets.data()) != 1) return std::nullopt;
  const std::string_view number = text.substr(slash + 1);
  const char* const end = number.data() + number.size();
  const auto read = std::from_chars(number.data(), end, prefix.bits);
  if (read.ec != std::errc() || read.ptr != end || prefix.bits > 8 * prefix.begin.width())
    return std::nullopt;
  return prefix;
}

bool Prefix::contains(const Address& address) const {
  if (address.v6 != begin.v6) return false;
  for (unsigned bit = 0; bit < bits; bit += 8) {
    const unsigned alike = bits - bit < 8 ? bits - bit : 8;
    const unsigned differ = address.octets[bit / 8] ^ begin.octets[bit / 8];
    if (differ >> (8 - alike) != 0) return false;
  }
  return true;
}

}  // namespace roundelay::platform
