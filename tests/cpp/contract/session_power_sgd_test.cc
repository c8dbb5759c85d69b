// Sessions whose ranks reduce buckets by power_sgd: flat and over two levels, with ranks that die, differ or
// join.
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

TechniquePtr technique(const std::string& text) { return compress::make_technique(text).value(); }

TEST_CASE("buckets by power_sgd lose nothing, two at once on two levels", "[session][technique][power_sgd]") {
  const ClusterShape shape = GENERATE(nodes_of(1, 3), nodes_of(2, 2), nodes_of(3, 2), one_and_three(),
                                      two_and_four(), three_and_four());
  const auto text_of = [](std::size_t bucket) {
    return "power_sgd:columns=70,rank=2,seed=" + std::to_string(bucket);
  };
  require_nothing_is_lost(shape.tree, 43 * 70, text_of, 0.0999);  // of sums of some thousands
}

TEST_CASE("a rank that dies before or between the calls of power_sgd is named",
          "[session][technique][power_sgd]") {
  require_the_dead_is_named(technique("power_sgd:columns=8"), GENERATE(0, 1), GENERATE(false, true));
}

TEST_CASE("ranks whose power_sgd differs get both texts before anything is sent",
          "[session][technique][power_sgd]") {
  require_both_texts(technique("power_sgd:columns=8,rank=2"), technique("power_sgd:columns=8,rank=1"));
}

TEST_CASE("while a rank has joined, power_sgd keeps its state and its run",
          "[session][technique][power_sgd][join]") {
  constexpr std::size_t kCount = 80;
  const TechniquePtr power_sgd = technique("power_sgd:columns=10,rank=1");
  require_join_keeps_state(power_sgd, kCount, [](TechniqueBucket& bucket) -> std::string {
    if (std::string wrong = apply_to_ones(bucket, kCount); !wrong.empty()) return wrong;
    for (const float one : bucket.read())
      if (std::abs(one - 2.0F) > 1e-4F) return "a matrix of rank 1 was not sent whole";
    return {};
  });
}

}  // namespace
}  // namespace roundelay::contract
