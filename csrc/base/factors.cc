#include "base/factors.h"

#include <algorithm>
#include <charconv>

namespace roundelay {
namespace {

constexpr std::size_t kMostRanks = 1 << 24;

}  // namespace

std::optional<Factors> Factors::parse(std::string_view text) {
  Factors factors;
  std::size_t ranks = 1;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::size_t factor = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + comma, factor);
    if (error != std::errc() || end != text.data() + comma) return std::nullopt;
    if (factor < 1 || factor > kMostRanks / ranks || comma + 1 == text.size()) return std::nullopt;
    ranks *= factor;
    factors.each.push_back(factor);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return factors;
}

std::string Factors::text() const {
  std::string all;
  for (const std::size_t factor : each) all += (all.empty() ? "" : ",") + std::to_string(factor);
  return all;
}

}  // namespace roundelay
