// Every interleaving of small cases of agreements under a schedule lock: members show cells, announce, enter
// and freeze in any order. Two wrong protocols are found out.
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/unit/agreement_room.h"
#include "tests/cpp/unit/schedule_checks.h"

namespace roundelay::submit {
namespace {

using negotiate::agreement_of;
using negotiate::request_of;

constexpr std::uint32_t kBytes = 80;  // more than a cell holds

wire::Request agreement() {
  return agreement_of("n", {{Merge::kEqual, 1}, {Merge::kMax, kBytes}, {Merge::kRoot, 1}}, 1);
}

// A member's values in its submission number `submission`. The first field differs now and then.
std::string values_of(std::size_t member, std::size_t submission) {
  std::string values(kBytes + 2, '\0');
  values[0] = static_cast<char>(submission % 3 == 1 ? member : submission);
  values[1 + (7 * submission + member) % kBytes] = static_cast<char>(1 + member);
  values.back() = static_cast<char>(10 * member + submission);
  return values;
}

// A period of a tensor and an agreement; so many periods.
Case usual(std::size_t members, std::size_t periods) {
  Case given;
  given.operations = {{request_of("a")}, {{agreement(), std::string(kBytes + 2, '\0')}}};
  for (std::size_t m = 0; m < members; ++m) {
    Submissions& script = given.scripts.emplace_back();
    for (std::size_t submission = 0; submission < periods; ++submission) {
      script.emplace_back(request_of("a"));
      script.emplace_back(agreement(), values_of(m, submission));
    }
  }
  return given;
}

TEST_CASE("agreements whose values change each time run under the lock, in every interleaving",
          "[schedule][agreement][interleavings]") {
  const auto [members, periods] = GENERATE(std::pair{2, 4}, std::pair{3, 2});
  const Case given = usual(static_cast<std::size_t>(members), static_cast<std::size_t>(periods));
  check_runs_under_the_lock(given);
}

TEST_CASE("an agreement alone in its period runs under the lock, in every interleaving",
          "[schedule][agreement][interleavings]") {
  Case given;
  given.operations = {{{agreement(), std::string(kBytes + 2, '\0')}}};
  for (std::size_t m = 0; m < 3; ++m) {
    Submissions& script = given.scripts.emplace_back();
    for (std::size_t submission = 0; submission < 4; ++submission)
      script.emplace_back(agreement(), values_of(m, submission));
  }
  check_runs_under_the_lock(given);
}

TEST_CASE("a surprise anywhere, or values that do not fit, lose no value, in every interleaving",
          "[schedule][agreement][interleavings]") {
  Case given = usual(2, 3);
  const std::size_t culprit = GENERATE(std::size_t{0}, std::size_t{1});
  const std::size_t submission = GENERATE(range(std::size_t{0}, std::size_t{3}));
  Submissions& script = given.scripts[culprit];
  SECTION("another name") {
    const auto at = script.begin() + static_cast<std::ptrdiff_t>(2 * submission);
    script.insert(at + GENERATE(0, 1), request_of("surprise"));
  }
  SECTION("a change that does not fit") { script[2 * submission + 1].values = std::string(kBytes + 2, 'x'); }
  SECTION("impatience") { given.impatient = true; }
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.wrong_results() == 0);
  CHECK(explorer.ends_unlocked() > 0);
  if (!given.impatient) CHECK(explorer.ends_unlocked() == explorer.ends());
}

TEST_CASE("the exploration finds a member that announces before it shows its cell",
          "[schedule][agreement][interleavings]") {
  Case given = usual(2, 2);
  given.word_first = true;
  check_is_found(given);
}

TEST_CASE("the exploration finds that one cell for an agreement is too few",
          "[schedule][agreement][interleavings]") {
  Case given = usual(2, 3);
  given.one_cell = true;
  check_is_found(given);
}

}  // namespace
}  // namespace roundelay::submit
