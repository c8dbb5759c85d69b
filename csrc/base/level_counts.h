// The statements of ROUNDELAY_TOPOLOGY: the counts of a cluster's parts, such as "rack=2,node=4" (2 racks
// with 4 nodes each), or the names of the parts around one rank, such as "pod1/rack3".
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

// Counts, or names, or neither.
struct StatedTopology {
  LevelCounts counts;  // equal on all ranks
  std::string names;   // of this rank's parts, from outside in, with '/' between them

  // Takes text with '=' or ',' for counts, other text for names. Returns nothing if counts are malformed.
  static std::optional<StatedTopology> parse(std::string_view text);
  // Returns text that parse() accepts.
  [[nodiscard]] std::string text() const { return counts.levels.empty() ? names : counts.text(); }
};

}  // namespace roundelay
