// The contents of a tuning file: the algorithms to take, and the constants of the cluster's links. Python
// reads and checks the file (roundelay/tuning/file.py); rank 0's text reaches all ranks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::collective {

struct Tuning {
  // A level is named after the part that it lies in: "node", "rack" ... "cluster".
  struct Level {
    std::string name;
    std::size_t members = 0;  // the size of the largest part: ranks of a node, nodes of a rack ...
  };
  // The constants of a level while all of its ranks work at once.
  struct Link {
    std::string level;
    double alpha = 0;      // seconds a message
    double bandwidth = 0;  // bytes a second of one rank
    double gamma = 0;      // seconds of CPU time a byte
  };
  // The algorithm of calls of at most `most_bytes` bytes in groups of at least `members` members.
  struct Choice {
    std::string level;
    Operation operation{};
    int members = 0;
    std::size_t most_bytes = 0;  // SIZE_MAX: any
    std::string algorithm;
  };

  std::string fabric;         // the fabric between nodes
  std::vector<Level> levels;  // innermost first
  std::vector<Link> links;
  std::vector<Choice> table;

  // Returns the tuning of the text that agreed_text() of roundelay/tuning/file.py makes. Errors:
  // kInvalidArgument with the line that is wrong.
  static Result<Tuning> parse(std::string_view text);
  // Returns a level's constants; null if it has none.
  [[nodiscard]] const Link* link(std::string_view level) const;
};

}  // namespace roundelay::collective
