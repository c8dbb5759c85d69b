// The choice of a call's algorithm. It depends only on the operation, its bytes, the number of members and
// ROUNDELAY_ALGORITHM, so that all members agree.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "collective/program.h"

namespace roundelay::collective {

// Returns a bound for the bytes of the call's messages, the same on all members. SIZE_MAX for an alltoall:
// each member knows only its own part.
std::size_t agreed_bytes(const Call& call);

// The most members of a group in which all parts of an element come to one place and are added in the order
// of members, so that sums depend neither on the size nor on fusion. Larger groups would have too many
// partners.
inline constexpr int kOnePlaceMembers = 64;

// Returns the names of an operation's algorithms, each once.
std::vector<std::string_view> algorithm_names(Operation operation);

// A rule by which calls get their algorithms.
class Select {
 public:
  // Chooses by the table in select.cc.
  constexpr Select() = default;
  // Returns the rule that takes the algorithm of this name for all calls that it can carry out, and the table
  // for the others. "auto": the table for all calls. Errors: kInvalidArgument, with all names.
  static Result<Select> by_name(std::string_view name);

  // Returns the algorithm for a call as the present members see it (present.h); `size` is their number.
  const Algorithm& operator()(const Call& call, int size) const;

 private:
  explicit constexpr Select(std::string_view forced) : forced_(forced) {}

  std::string_view forced_;  // in static storage; "": none
};

}  // namespace roundelay::collective
