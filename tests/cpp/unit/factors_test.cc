// The text of ROUNDELAY_FACTORS.
#include "base/factors.h"

#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay {
namespace {

TEST_CASE("factors from the inside out", "[factors]") {
  CHECK(Factors::parse("4,2,3")->each == std::vector<std::size_t>{4, 2, 3});
  CHECK(Factors::parse("4,2,3")->text() == "4,2,3");
  CHECK(Factors::parse("1")->each == std::vector<std::size_t>{1});
  CHECK(Factors::parse("4096,4096")->each.size() == 2);
  CHECK(Factors::parse("")->each.empty());
  CHECK(Factors::parse("")->text().empty());
}

TEST_CASE("malformed factors", "[factors]") {
  for (const char* const text : {",", "4,", ",4", "4,,2", "0", "4,0", "-1", "+4", "4x", " 4", "4 ,2", "4x2",
                                 "4096,4097", "a", "99999999999999999999"}) {
    INFO(text);
    CHECK_FALSE(Factors::parse(text).has_value());
  }
}

TEST_CASE("lists of factors", "[factors]") {
  const auto lists = FactorLists::parse("4,2,3+4,6");
  REQUIRE(lists.has_value());
  CHECK(lists->each == std::vector<Factors>{{{4, 2, 3}}, {{4, 6}}});
  CHECK(lists->text() == "4,2,3+4,6");
  CHECK(FactorLists::parse("4,2")->each.size() == 1);
  CHECK(FactorLists::parse("")->each.empty());
  for (const char* const text : {"+", "4+", "+4", "4++2", "4,2+4,2", "4,2+a"}) {
    INFO(text);
    CHECK_FALSE(FactorLists::parse(text).has_value());
  }
}

}  // namespace
}  // namespace roundelay
