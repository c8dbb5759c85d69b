#include "lock/schedule_finder.h"

#include <string>

#include "tests/cpp/catch.h"

namespace roundelay::negotiate {
namespace {

using Ids = lock::ScheduleFinder::Ids;

// Each letter is an operation with one member.
void see(lock::ScheduleFinder& finder, const std::string& letters) {
  for (const char letter : letters) finder.saw({static_cast<wire::CacheId>(letter)});
}

std::string found(const lock::ScheduleFinder& finder) {
  std::string letters;
  const auto period = finder.period();
  if (!period) return "-";
  for (const Ids& ids : *period) letters += static_cast<char>(ids.front());
  return letters;
}

TEST_CASE("three equal periods are a schedule, which goes on from where it is", "[schedule]") {
  lock::ScheduleFinder finder;
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
  lock::ScheduleFinder finder;
  see(finder, "aabaabaab");
  CHECK(found(finder) == "aab");
  finder.interrupted();
  // Every third step has a metric: if two repetitions were enough, the steps between would look like a
  // schedule.
  for (int i = 0; i < 3; ++i) {
    see(finder, "ababm");
    if (i < 2) CHECK(found(finder) == "-");
  }
  CHECK(found(finder) == "ababm");
}

TEST_CASE("the same tensors in other operations are another sequence", "[schedule]") {
  lock::ScheduleFinder finder;
  for (int i = 0; i < 5; ++i) {
    finder.saw({1, 2});
    finder.saw({3});
    finder.saw(i % 2 == 0 ? Ids{4, 5} : Ids{5, 4});
  }
  CHECK(found(finder) == "-");
}

TEST_CASE("no period goes across an interruption", "[schedule]") {
  lock::ScheduleFinder finder;
  see(finder, "abab");
  finder.interrupted();
  see(finder, "abab");
  CHECK(found(finder) == "-");
  see(finder, "ab");
  CHECK(found(finder) == "ab");
}

TEST_CASE("the longest period is found, a longer one is not", "[schedule]") {
  for (const std::size_t length :
       {lock::ScheduleFinder::kLongestPeriod, lock::ScheduleFinder::kLongestPeriod + 1}) {
    lock::ScheduleFinder finder;
    for (std::size_t i = 0; i < 4 * length; ++i) finder.saw({static_cast<wire::CacheId>(1 + i % length)});
    CHECK(finder.period().has_value() == (length == lock::ScheduleFinder::kLongestPeriod));
  }
}

TEST_CASE("operations that never come again are forgotten", "[schedule]") {
  lock::ScheduleFinder finder;
  for (wire::CacheId id = 1; id < 100'000; ++id) finder.saw({id});
  see(finder, "aaa");
  CHECK(found(finder) == "a");
}

TEST_CASE("a lock that does not last asks for more evidence, one that does for less", "[schedule]") {
  lock::ScheduleFinder finder;
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
  CHECK(finder.periods_needed() == lock::ScheduleFinder::kMostPeriods);
}

}  // namespace
}  // namespace roundelay::negotiate
