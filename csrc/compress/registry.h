// The techniques of this build, by name. Text chooses one: "negate", "cyclic:parts=8".
//
// To add a technique: a folder here with one .cc file that defines kTechnique, and one line in registry.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "compress/technique.h"

namespace roundelay::compress {

// A parameter of a technique: a whole number. The text may give any value from `least` to `most`.
struct Parameter {
  std::string_view key;      // its name in the text
  std::string_view meaning;  // for users: "the number of steps in which ..."
  std::int64_t least, most;
  std::int64_t standard;  // its value if the text has none
};

struct TechniqueKind {
  std::string_view name;
  std::string_view meaning;  // one sentence, for users
  std::span<const Parameter> parameters;
  // Makes the technique. `values` has one for each parameter, in their order, each in its range.
  TechniquePtr (*make)(std::span<const std::int64_t> values);
};

// Returns all techniques of this build. Any thread.
[[nodiscard]] std::span<const TechniqueKind* const> known_techniques();
// Makes the technique that "name" or "name:key=value,key=value" chooses. Any thread. Errors: kInvalidArgument
// (no such technique, no such key, a key twice, a value out of range); the message says what is allowed.
[[nodiscard]] Result<TechniquePtr> make_technique(std::string_view text);

}  // namespace roundelay::compress
