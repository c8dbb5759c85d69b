// Every interleaving of small cases of the schedule lock, with a surprise anywhere.
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/unit/negotiate_requests.h"
#include "tests/cpp/unit/schedule_explorer.h"

namespace roundelay::submit {
namespace {

Submissions submissions(const std::vector<std::string>& names) {
  Submissions made;
  for (const std::string& name : names) made.push_back(negotiate::request_of(name));
  return made;
}

// Two operations per period: three periods for two members, one and a half for three (200 times the states).
Case usual(std::size_t members) {
  Submissions script = submissions({"a", "b", "a", "b", "a", "b"});
  if (members > 2) script.resize(3);
  return {std::vector(members, script), {submissions({"a"}), submissions({"b"})}};
}

TEST_CASE("steps without a surprise all run under the lock, in every interleaving",
          "[schedule][interleavings]") {
  const std::size_t members = GENERATE(std::size_t{2}, std::size_t{3});
  const Case given = usual(members);
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends() == 1);
  CHECK(explorer.ends_unlocked() == 0);
}

TEST_CASE("a surprise anywhere ends the lock at one place for all, in every interleaving",
          "[schedule][interleavings]") {
  const std::size_t members = GENERATE(std::size_t{2}, std::size_t{3});
  const std::size_t at = GENERATE(range(std::size_t{0}, std::size_t{7}));
  const bool everyone = GENERATE(true, false);
  Case given = usual(members);
  if (at > given.scripts.front().size()) return;
  for (std::size_t m = 0; m < (everyone ? members : 1); ++m)
    given.scripts[m].insert(given.scripts[m].begin() + static_cast<std::ptrdiff_t>(at),
                            negotiate::request_of("surprise"));
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.states() > 50);
  CHECK(explorer.ends_unlocked() == explorer.ends());
}

// The lock's bucket "a" takes a technique.
Case with_technique() {
  Case given = usual(2);
  given.operations[0][0].request.technique = "cyclic:parts=4";
  for (Submissions& script : given.scripts) {
    for (std::size_t submission = 0; submission < script.size(); submission += 2)
      script[submission].request.technique = "cyclic:parts=4";
  }
  return given;
}

TEST_CASE("buckets that keep their techniques all run under the lock, in every interleaving",
          "[schedule][interleavings]") {
  const Case given = with_technique();
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends() == 1);
  CHECK(explorer.ends_unlocked() == 0);
}

TEST_CASE("another technique, a flush or a join ends the lock at one place for all, in every interleaving",
          "[schedule][interleavings]") {
  const std::size_t at = GENERATE(std::size_t{0}, std::size_t{2}, std::size_t{4});
  Case given = with_technique();
  const auto take = [&](std::size_t m, const char* technique) {
    given.scripts[m][at].request.technique = technique;
  };
  SECTION("all flush") {
    for (const std::size_t m : {std::size_t{0}, std::size_t{1}}) take(m, "cyclic:parts=4 flush");
  }
  SECTION("one is dense") { take(0, ""); }
  SECTION("both have another one, not the same") {
    take(0, "cyclic:parts=8");
    take(1, "negate");
  }
  SECTION("one joins") {
    given.scripts[1].resize(at + 1);
    given.scripts[1].back() = negotiate::request_of("join", {});
    given.scripts[1].back().request.operation = Operation::kJoin;
  }
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.states() > 50);
  CHECK(explorer.ends_unlocked() == explorer.ends());
}

TEST_CASE("whoever loses patience, whenever: what is announced by all still runs everywhere",
          "[schedule][interleavings]") {
  Case given = usual(2);
  given.impatient = true;
  SECTION("all come") {}
  SECTION("one stays away") { given.scripts[1].resize(3); }
  SECTION("one has another order") { std::swap(given.scripts[1][2], given.scripts[1][3]); }
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends_unlocked() > 0);
}

TEST_CASE("several members and repeated names in an operation, in every interleaving",
          "[schedule][interleavings]") {
  Case given;
  given.operations = {submissions({"a", "b"}), submissions({"a"})};
  given.scripts = {submissions({"a", "b", "a", "b", "a", "surprise"}),
                   submissions({"b", "a", "a", "a", "b", "surprise"})};
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends_unlocked() == explorer.ends());
}

}  // namespace
}  // namespace roundelay::submit
