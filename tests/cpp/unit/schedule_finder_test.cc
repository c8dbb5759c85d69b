#include "negotiate/schedule_finder.h"

#include <string>

#include "tests/cpp/catch.h"

namespace roundelay::negotiate {
namespace {

using Ids = ScheduleFinder::Ids;

// A letter is an operation of one member.
void see(ScheduleFinder& finder, const std::string& letters) {
  for (const char letter : letters) finder.saw({static_cast<wire::CacheId>(letter)});
}

std::string found(const ScheduleFinder& finder) {
  std::string letters;
  const auto period = finder.period();
  if (!period) return "-";
  for (const Ids& ids : *period) letters += static_cast<char>(ids.front());
  return letters;
}

TEST_CASE("three equal periods are a schedule, which goes on from where it is", "[schedule]") {
  ScheduleFinder finder;
  CHECK(found(finder) == "-");
  see(finder, "xyabcabcab");
  CHECK(found(finder) == "-");
  see(finder, "c");
  CHECK(found(finder) == "abc");
  see(finder, "a");
  CHECK(found(finder) == "bca");
  see(finder, "q");
  CHECK(found(finder) == "-");
}

TEST_CASE("an operation may come several times in a period, and periods may nest", "[schedule]") {
  ScheduleFinder finder;
  see(finder, "aabaabaab");
  CHECK(found(finder) == "aab");
  finder.interrupted();
  // A metric in every third step: the steps between look like a schedule if two periods are enough, not if
  // three are needed.
  for (int i = 0; i < 3; ++i) {
    see(finder, "ababm");
    if (i < 2) CHECK(found(finder) == "-");
  }
  CHECK(found(finder) == "ababm");
}

TEST_CASE("the same tensors in other operations are another sequence", "[schedule]") {
  ScheduleFinder finder;
  for (int i = 0; i < 5; ++i) {
    finder.saw({1, 2});
    finder.saw({3});
    finder.saw(i % 2 == 0 ? Ids{4, 5} : Ids{5, 4});
  }
  CHECK(found(finder) == "-");
}

TEST_CASE("no period goes across an interruption", "[schedule]") {
  ScheduleFinder finder;
  see(finder, "abab");
  finder.interrupted();
  see(finder, "abab");
  CHECK(found(finder) == "-");
  see(finder, "ab");
  CHECK(found(finder) == "ab");
}

TEST_CASE("the longest period is found, a longer one is not", "[schedule]") {
  for (const std::size_t length : {ScheduleFinder::kLongestPeriod, ScheduleFinder::kLongestPeriod + 1}) {
    ScheduleFinder finder;
    for (std::size_t i = 0; i < 4 * length; ++i) finder.saw({static_cast<wire::CacheId>(1 + i % length)});
    CHECK(finder.period().has_value() == (length == ScheduleFinder::kLongestPeriod));
  }
}

TEST_CASE("operations that never come again are forgotten", "[schedule]") {
  ScheduleFinder finder;
  for (wire::CacheId id = 1; id < 100'000; ++id) finder.saw({id});
  see(finder, "aaa");
  CHECK(found(finder) == "a");
}

TEST_CASE("a lock that does not last asks for more evidence, one that does for less", "[schedule]") {
  ScheduleFinder finder;
  see(finder, "ababab");
  REQUIRE(found(finder) == "ab");
  finder.unlocked(2, 3);
  CHECK(finder.periods_needed() == 6);
  see(finder, "ababababab");
  CHECK(found(finder) == "-");
  see(finder, "ab");
  CHECK(found(finder) == "ab");
  finder.unlocked(2, 2 * 6 * 8);
  CHECK(finder.periods_needed() == 3);
  for (int i = 0; i < 20; ++i) finder.unlocked(2, 0);
  CHECK(finder.periods_needed() == ScheduleFinder::kMostPeriods);
}

}  // namespace
}  // namespace roundelay::negotiate
