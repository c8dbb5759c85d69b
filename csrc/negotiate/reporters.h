// Members who have reported something alike, as the coordinator reads it.
#pragma once

#include <span>

#include "wire/messages.h"

namespace roundelay::negotiate {

struct Reporters {
  std::span<const int> members;  // ascending; not empty
  const wire::Report& report;
  std::span<const wire::MemberChange> others{};  // those whose values in agreements differ from the report's
};

}  // namespace roundelay::negotiate
