#include "base/level_counts.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace roundelay {
namespace {

constexpr std::size_t kMostNodes = 1 << 24;
constexpr std::string_view kTaken[] = {"cluster", "gpu"};  // levels of a tuning file that are no parts

std::optional<LevelCount> parse_one(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) return std::nullopt;
  LevelCount count{std::string(text.substr(0, equals)), 0};
  const std::string_view digits = text.substr(equals + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count.each);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  if (count.each < 1 || !std::ranges::all_of(count.name, is_letter)) return std::nullopt;
  if (std::ranges::find(kTaken, count.name) != std::end(kTaken)) return std::nullopt;
  return count;
}

}  // namespace

std::optional<LevelCounts> LevelCounts::parse(std::string_view text) {
  LevelCounts counts;
  if (text.empty()) return counts;
  std::size_t nodes = 1;
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::optional<LevelCount> count = parse_one(text.substr(0, comma));
    if (!count || count->each > kMostNodes / nodes) return std::nullopt;
    if (std::ranges::find(counts.levels, count->name, &LevelCount::name) != counts.levels.end()) {
      return std::nullopt;
    }
    nodes *= count->each;
    counts.levels.push_back(std::move(*count));
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  if (counts.levels.back().name != "node") return std::nullopt;
  return counts;
}

std::string LevelCounts::text() const {
  std::string all;
  for (const LevelCount& count : levels) {
    all += (all.empty() ? "" : ",") + count.name + "=" + std::to_string(count.each);
  }
  return all;
}

std::size_t LevelCounts::nodes() const {
  std::size_t nodes = 1;
  for (const LevelCount& count : levels) nodes *= count.each;
  return nodes;
}

std::optional<StatedTopology> StatedTopology::parse(std::string_view text) {
  if (text.find_first_of("=,") == std::string_view::npos) return StatedTopology{{}, std::string(text)};
  std::optional<LevelCounts> counts = LevelCounts::parse(text);
  if (!counts) return std::nullopt;
  return StatedTopology{std::move(*counts), {}};
}

}  // namespace roundelay
