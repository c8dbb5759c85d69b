// Sessions whose ranks reduce buckets in 8 bits: flat and over two levels, with ranks that die or join.
#include <cmath>

#include "compress/registry.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/levels_world.h"
#include "tests/cpp/contract/shard_courses.h"
#include "tests/cpp/contract/technique_errors.h"
#include "tests/cpp/contract/technique_join.h"

namespace roundelay::contract {
namespace {

using compress::TechniquePtr;

TechniquePtr quantised() { return compress::make_technique("quantised").value(); }

TEST_CASE("buckets in 8 bits lose nothing, two at once on two levels", "[session][technique][quantised]") {
  const ClusterShape shape = GENERATE(nodes_of(1, 3), nodes_of(2, 2), nodes_of(3, 2), one_and_three(),
                                      two_and_four(), three_and_four());
  const auto text_of = [](std::size_t) { return std::string("quantised"); };
  require_nothing_is_lost(shape.tree, 3001, text_of, 0.01);  // of sums of some thousands
}

// A bucket of one block is one rank's part: the others need nothing of each other after the exchange.
TEST_CASE("a rank that dies before the exchange of quantised is named", "[session][technique][quantised]") {
  require_the_dead_is_named(quantised(), 0, GENERATE(false, true));
}

TEST_CASE("while a rank has joined, quantised keeps its state and its run",
          "[session][technique][quantised][join]") {
  constexpr std::size_t kCount = 80;
  require_join_keeps_state(quantised(), kCount, [](TechniqueBucket& bucket) -> std::string {
    if (std::string wrong = apply_to_ones(bucket, kCount); !wrong.empty()) return wrong;
    for (const float one : bucket.read())
      if (std::abs(one - 2.0F) > 1e-5F) return "a block of equal numbers was rounded";
    return {};
  });
}

}  // namespace
}  // namespace roundelay::contract
