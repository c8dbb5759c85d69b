// Every interleaving of small cases of the schedule lock between nodes, with the messages that carry it.
// Wrong protocols are found out.
#include <string>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/effort.h"
#include "tests/cpp/unit/agreement_room.h"
#include "tests/cpp/unit/negotiate_requests.h"
#include "tests/cpp/unit/schedule_checks.h"

namespace roundelay::submit {
namespace {

using negotiate::agreement_of;
using negotiate::request_of;

wire::Request agreement() { return agreement_of("n", {{Merge::kMax, 1}}, 0); }

std::string values_of(std::size_t member, std::size_t submission) {
  return std::string(1, static_cast<char>(1 + 3 * submission + member));
}

struct Shape {
  std::vector<int> nodes;  // by member
  int fan_out;
  std::size_t submissions;  // of each member
};

// A period is an agreement, or one and a tensor.
Case usual(const Shape& shape, bool with_tensor) {
  Case given;
  given.nodes = shape.nodes;
  given.fan_out = shape.fan_out;
  given.operations = {{{agreement(), std::string(1, '\0')}}};
  if (with_tensor) given.operations.push_back({request_of("a")});
  for (std::size_t m = 0; m < shape.nodes.size(); ++m) {
    Submissions& script = given.scripts.emplace_back();
    for (std::size_t n = 0; n < shape.submissions; ++n) {
      if (with_tensor && n % 2 == 1) {
        script.emplace_back(request_of("a"));
      } else {
        script.emplace_back(agreement(), values_of(m, n));
      }
    }
  }
  return given;
}

const std::vector<int> kTwo = {0, 1}, kTwoAndOne = {0, 0, 1}, kPairs = {0, 0, 1, 1}, kThree = {0, 1, 2},
                       kFour = {0, 1, 2, 3};

TEST_CASE("between nodes steps run under the lock, in every interleaving",
          "[schedule][interleavings][nodes]") {
  const Shape shape = GENERATE(Shape{kTwo, 1, 4}, Shape{kTwoAndOne, 1, 3}, Shape{kPairs, 1, 2},
                               Shape{kThree, 1, 2}, Shape{kThree, 2, 2}, Shape{kFour, 1, 1});
  check_runs_under_the_lock(usual(shape, GENERATE(false, true)));
}

TEST_CASE("between nodes a surprise anywhere ends the lock at one place, in every interleaving",
          "[schedule][interleavings][nodes]") {
  const Shape shape =
      GENERATE(Shape{kTwo, 1, 3}, Shape{kTwoAndOne, 1, 2}, Shape{kThree, 1, 1}, Shape{kThree, 2, 1});
  if (testing::quick() && shape.nodes != kTwo) return;
  const std::size_t culprit = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  if (culprit >= shape.nodes.size()) return;
  const std::size_t at = GENERATE(range(std::size_t{0}, std::size_t{4}));
  if (at > shape.submissions) return;
  Case given = usual(shape, true);
  Submissions& script = given.scripts[culprit];
  script.insert(script.begin() + static_cast<std::ptrdiff_t>(at), request_of("surprise"));
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.wrong_results() == 0);
  CHECK(explorer.ends_unlocked() == explorer.ends());
}

TEST_CASE("between nodes whoever loses patience, whenever: what all announced runs everywhere",
          "[schedule][interleavings][nodes]") {
  Case given = usual(GENERATE(Shape{kTwo, 1, 2}, Shape{kTwoAndOne, 1, 1}, Shape{kThree, 1, 1}), true);
  given.impatient = true;
  if (testing::quick() && given.nodes != kTwo) return;
  SECTION("all come") {}
  SECTION("one stays away") { given.scripts[1].pop_back(); }
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.wrong_results() == 0);
  CHECK(explorer.ends_unlocked() > 0);
}

TEST_CASE("the exploration finds cells that travel behind their word", "[schedule][interleavings][nodes]") {
  Case given = usual({kTwo, 1, 4}, false);
  given.cells_behind = true;
  check_is_found(given);
}

TEST_CASE("the exploration finds a member that ends the lock before it has seen all positions",
          "[schedule][interleavings][nodes]") {
  Case given = usual({kTwo, 1, 4}, false);
  given.scripts[0].emplace_back(request_of("surprise"));
  given.early_end = true;
  check_is_found(given);
}

TEST_CASE("between nodes the exploration finds that one cell is too few",
          "[schedule][interleavings][nodes]") {
  Case given = usual({kTwo, 1, 4}, false);
  given.one_cell = true;
  check_is_found(given);
}

}  // namespace
}  // namespace roundelay::submit
