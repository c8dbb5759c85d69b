// The parameters of techniques: the values that they take, and these values as text. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace roundelay::compress {

// A whole number in a range. `standard`: its value if the text has none.
struct Whole {
  std::int64_t least, most;
  std::int64_t standard;
};

// A decimal number in a range, which may have no end of its own.
struct Real {
  double least, most;
  double standard;
  bool above_least = false;  // the range does not contain `least`
  bool below_most = false;   // the range does not contain `most`
};

// One of these words. The first is the standard.
struct Word {
  std::span<const std::string_view> words;
};

// Ascending indices with "+" between them: "0+3+17". The standard is none, and none is left out of the text.
struct Indices {};

// Whole numbers below 2^32 in any order, with "+" between them: "9+0+9". The standard is as that of Indices.
struct Numbers {};

struct Parameter {
  std::string_view key;
  std::string_view meaning;  // a phrase for users: "the number of steps in which ..."
  std::variant<Whole, Real, Word, Indices, Numbers> takes;
  bool omits_standard = false;  // texts leave the standard out, so that those of older states stay the same
};

// The value of a Whole, a Real, a Word, and of Indices or Numbers.
using Value = std::variant<std::int64_t, double, std::string_view, std::vector<std::uint32_t>>;

// Returns the value that a text without this parameter gives.
[[nodiscard]] Value standard_of(const Parameter& parameter);
// Returns the value that the text gives; none: it gives no value that the parameter takes.
[[nodiscard]] std::optional<Value> parse(const Parameter& parameter, std::string_view text);
// Says what the parameter takes: "a whole number from 1 to 8".
[[nodiscard]] std::string taken_by(const Parameter& parameter);
// Returns the value's one form as text. Empty: the text of a technique leaves the value out.
[[nodiscard]] std::string text_of(const Value& value);

}  // namespace roundelay::compress
