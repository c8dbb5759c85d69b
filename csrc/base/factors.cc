#include "base/factors.h"

#include <algorithm>
#include <charconv>
#include <utility>

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

std::optional<FactorLists> FactorLists::parse(std::string_view text) {
  FactorLists lists;
  for (bool more = !text.empty(); more;) {
    const std::size_t plus = std::min(text.find('+'), text.size());
    auto factors = Factors::parse(text.substr(0, plus));
    if (!factors || factors->each.empty()) return std::nullopt;
    if (std::ranges::find(lists.each, *factors) != lists.each.end()) return std::nullopt;
    lists.each.push_back(std::move(*factors));
    more = plus < text.size();
    if (more) text.remove_prefix(plus + 1);
  }
  return lists;
}

std::string FactorLists::text() const {
  std::string all;
  for (const Factors& factors : each) all += (all.empty() ? "" : "+") + factors.text();
  return all;
}

}  // namespace roundelay
