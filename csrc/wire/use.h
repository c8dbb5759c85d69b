// One use of a name on one rank: what it submits.
#pragma once

#include <string>
#include <utility>

#include "wire/messages.h"

namespace roundelay::wire {

struct Use {
  Use(Request of = {}, std::string own_values = {})  // NOLINT(google-explicit-constructor)
      : request(std::move(of)), values(std::move(own_values)) {}

  Request request;
  std::string values;  // an agreement's values on this rank (base/agreement.h)
  friend bool operator==(const Use&, const Use&) = default;
};

}  // namespace roundelay::wire
