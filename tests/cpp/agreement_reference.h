// What an agreement has to return, computed the plain way: byte by byte, from the values of all ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/agreement.h"

namespace roundelay::testing {

using ValuesByRank = std::map<int, std::string>;  // world rank: its values

// Returns the result of these ranks, without `absent`.
inline Agreed reference_of(const std::vector<AgreementField>& fields, int root, const ValuesByRank& ranks) {
  Agreed agreed;
  std::size_t begin = 0;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto [merge, bytes] = fields[f];
    const auto part = [&, b = begin, n = bytes](int rank) { return ranks.at(rank).substr(b, n); };
    const int lowest = ranks.begin()->first;
    for (std::size_t i = 0; i < bytes; ++i) {
      unsigned all = merge == Merge::kAnd ? 255 : 0;
      for (const auto& [rank, values] : ranks) {
        const unsigned mine = static_cast<unsigned char>(values[begin + i]);
        if (merge == Merge::kAnd) all &= mine;
        if (merge == Merge::kOr) all |= mine;
        if (merge == Merge::kMax) all = std::max(all, mine);
        if (merge == Merge::kRoot && rank == root) all = mine;
        if (merge == Merge::kEqual && rank == lowest) all = mine;
      }
      agreed.values += static_cast<char>(all);
    }
    const auto other = std::find_if(ranks.begin(), ranks.end(), [&](const auto& one) {
      return merge == Merge::kEqual && part(one.first) != part(lowest);
    });
    if (other != ranks.end()) {
      agreed.differences.push_back(
          {static_cast<std::uint32_t>(f), lowest, other->first, part(lowest), part(other->first)});
    }
    begin += bytes;
  }
  return agreed;
}

}  // namespace roundelay::testing
