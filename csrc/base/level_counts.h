// The counts of a cluster's parts, such as "rack=2,node=4": 2 racks with 4 nodes each.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace roundelay {

struct LevelCount {
  std::string name;      // lower-case letters and '_'; not "cluster" nor "gpu"
  std::size_t each = 1;  // the number of parts in each part of the level outside, at least 1
  friend bool operator==(const LevelCount&, const LevelCount&) = default;
};

struct LevelCounts {
  std::vector<LevelCount> levels;  // from outside in; the last one is "node". Empty: no counts

  // Returns the counts; nothing if the text is malformed. The empty text has no counts.
  static std::optional<LevelCounts> parse(std::string_view text);
  // Returns text that parse() accepts.
  [[nodiscard]] std::string text() const;
  // Returns the number of nodes in all; 1 if there are no counts.
  [[nodiscard]] std::size_t nodes() const;

  friend bool operator==(const LevelCounts&, const LevelCounts&) = default;
};

}  // namespace roundelay
