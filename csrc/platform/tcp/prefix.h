#pragma once

#include <optional>
#include <string_view>

#include "platform/tcp/address.h"

namespace roundelay::platform {

// A range of IP addresses that begin alike: "10.1.0.0/16", "fd00:1::/32".
struct Prefix {
  Address begin;
  unsigned bits = 0;  // that are alike

  // Returns nothing if the text is no prefix.
  static std::optional<Prefix> parse(std::string_view text);
  [[nodiscard]] bool contains(const Address& address) const;
};

}  // namespace roundelay::platform
