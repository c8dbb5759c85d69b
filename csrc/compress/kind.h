// What there is to know of a technique before one is made: its name, its parameters and how to make it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compress/parameters.h"
#include "compress/technique.h"

namespace roundelay::compress {

struct TechniqueKind {
  std::string_view name;     // lower-case letters, digits and "_"
  std::string_view meaning;  // one sentence, for users
  std::span<const Parameter> parameters;
  // Makes the technique. `values` has one for each parameter, in their order; `text` is what its text()
  // returns.
  TechniquePtr (*make)(std::span<const Value> values, const std::string& text);
};

}  // namespace roundelay::compress
