// The factors of a plan of levels, such as "4,2,3": 4 ranks, 2 of these groups, and 3 of those. Several plans
// are "4,2,3+4,6".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace roundelay {

struct Factors {
  std::vector<std::size_t> each;  // innermost first, each at least 1. Empty: no factors

  // Returns the factors; nothing if the text is malformed. The empty text has no factors.
  static std::optional<Factors> parse(std::string_view text);
  // Returns text that parse() accepts.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const Factors&, const Factors&) = default;
};

struct FactorLists {
  std::vector<Factors> each;  // different, and none is empty. Empty: no list

  // As Factors::parse() and Factors::text().
  static std::optional<FactorLists> parse(std::string_view text);
  [[nodiscard]] std::string text() const;

  friend bool operator==(const FactorLists&, const FactorLists&) = default;
};

}  // namespace roundelay
