// Reads spans out of the text that a timeline makes.
#pragma once

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cpp/catch.h"
#include "timeline/timeline.h"

namespace roundelay {

struct Span {
  double begin, end;  // microseconds
};

// Returns the intervals of one row.
inline std::vector<Span> spans(const std::string& text, timeline::Row row) {
  std::vector<Span> found;
  std::istringstream in(text);
  const std::string mine = "\"tid\":" + std::to_string(static_cast<int>(row)) + ",";
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"ph\":\"X\"") == std::string::npos || line.find(mine) == std::string::npos) continue;
    double begin = 0, duration = 0;
    REQUIRE(std::sscanf(line.c_str() + line.find("\"ts\":"), "\"ts\":%lf,\"dur\":%lf", &begin, &duration) ==
            2);
    found.push_back({begin, begin + duration});
  }
  return found;
}

}  // namespace roundelay
