// What an agreement has to return, computed the plain way: byte by byte, from the values of all ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/agreement.h"

namespace roundelay::testing {

using ValuesByRank = std::map<int, std::string>;  // world rank: its values

// Returns the sums of the doubles of which these values consist, and the lowest rank's further bytes.
inline std::string sums_of(const std::vector<std::string>& parts) {
  std::string all = parts.front();
  for (std::size_t at = 0; at + sizeof(double) <= all.size(); at += sizeof(double)) {
    std::vector<double> numbers(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i)
      std::memcpy(&numbers[i], parts[i].data() + at, sizeof(double));
    for (std::size_t i = 1; i < parts.size(); ++i) {
      numbers[0] += numbers[i];
      if (std::isnan(numbers[0])) numbers[0] = std::numeric_limits<double>::quiet_NaN();
    }
    std::memcpy(all.data() + at, numbers.data(), sizeof(double));
  }
  return all;
}

// Returns the result of these ranks, without `absent`.
inline Agreed reference_of(const std::vector<AgreementField>& fields, int root, const ValuesByRank& ranks) {
  Agreed agreed;
  std::size_t begin = 0;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto [merge, bytes] = fields[f];
    const auto part = [&, b = begin, n = bytes](int rank) { return ranks.at(rank).substr(b, n); };
    const int lowest = ranks.begin()->first;
    if (merge == Merge::kSum) {
      std::vector<std::string> parts;
      for (const auto& [rank, values] : ranks) parts.push_back(part(rank));
      agreed.values += sums_of(parts);
      begin += bytes;
      continue;
    }
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
