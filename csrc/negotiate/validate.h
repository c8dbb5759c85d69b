// Do two ranks mean the same operation? If not: which tensor, which ranks, what differs.
#pragma once

#include <string>

#include "wire/messages.h"

namespace roundelay::negotiate {

// Empty if they agree. `a` and `b` are uses of one name by world ranks `rank_a` and `rank_b`.
std::string mismatch(const wire::Request& a, int rank_a, const wire::Request& b, int rank_b);

// For messages: "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace roundelay::negotiate
