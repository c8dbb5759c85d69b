// Sessions whose ranks reduce buckets by topk: flat and over two levels, with ranks that die, differ or join.

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

TEST_CASE("buckets by topk lose nothing, two at once on two levels", "[session][technique][topk]") {
  constexpr std::size_t kCount = 3001;
  const ClusterShape shape = GENERATE(nodes_of(1, 3), nodes_of(2, 2), nodes_of(3, 2), one_and_three(),
                                      two_and_four(), three_and_four());
  const std::string more = GENERATE(",select=radix", ",index_bits=16");
  const auto text_of = [&](std::size_t bucket) {
    return "topk:density=0.05,before=" + std::to_string(kCount * bucket) + more;
  };
  require_nothing_is_lost(shape.tree, kCount, text_of, 0);
}

TEST_CASE("a rank that dies before the gather of topk is named", "[session][technique][topk]") {
  require_the_dead_is_named(technique("topk:density=0.25"), 0, GENERATE(false, true));
}

TEST_CASE("ranks whose topk differs get both texts before anything is sent", "[session][technique][topk]") {
  require_both_texts(technique("topk:density=0.01"), technique("topk:density=0.01,index_bits=16"));
}

TEST_CASE("while a rank has joined, topk keeps its state and its run", "[session][technique][topk][join]") {
  constexpr std::size_t kCount = 80;
  const TechniquePtr topk = technique("topk:density=0.25,select=radix");
  require_join_keeps_state(topk, kCount, [](TechniqueBucket& bucket) -> std::string {
    if (std::string wrong = apply_to_ones(bucket, kCount); !wrong.empty()) return wrong;
    for (std::size_t i = 0; i < kCount; ++i) {  // the first quarter went before, and the next one has waited
      const float expected = i >= kCount / 4 && i < kCount / 2 ? 4.0F : 0.0F;
      if (bucket.elements()[i] != expected) return "a wrong sum at " + std::to_string(i);
    }
    return {};
  });
}

}  // namespace
}  // namespace roundelay::contract
