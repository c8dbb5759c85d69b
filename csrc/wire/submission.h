// One submission of a name on one rank: what the negotiation knows of it.
#pragma once

#include <string>
#include <utility>

#include "wire/messages.h"

namespace roundelay::wire {

struct Submission {
  Submission(Request what = {}, std::string own_values = {})  // NOLINT(google-explicit-constructor)
      : request(std::move(what)), values(std::move(own_values)) {}

  Request request;
  std::string values;  // an agreement's values on this rank (base/agreement.h)
  friend bool operator==(const Submission&, const Submission&) = default;
};

}  // namespace roundelay::wire
