// The techniques of this build, by name. Text chooses one: "negate", "cyclic:parts=8". Its one form has all
// parameters, but for lists that are empty and for standards that are left out.
//
// To add a technique: a folder here with one .cc file that defines kTechnique, and one line in registry.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compress/parameters.h"
#include "compress/technique.h"

namespace roundelay::compress {

struct TechniqueKind {
  std::string_view name;
  std::string_view meaning;  // one sentence, for users
  std::span<const Parameter> parameters;
  // Makes the technique. `values` has one for each parameter, in their order; `text` is what its text()
  // returns.
  TechniquePtr (*make)(std::span<const Value> values, const std::string& text);
};

// Returns all techniques of this build. Any thread.
[[nodiscard]] std::span<const TechniqueKind* const> known_techniques();
// Makes the technique that "name" or "name:key=value,key=value" chooses. Any thread. Errors: kInvalidArgument
// (no such technique, no such key, a key twice, a value out of range); the message says what is allowed.
[[nodiscard]] Result<TechniquePtr> make_technique(std::string_view text);

}  // namespace roundelay::compress
