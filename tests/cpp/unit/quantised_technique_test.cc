// quantised over inproc fabrics of several nodes: what arrives, what is sent and what is kept.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "compress/quantised/parts.h"
#include "compress/registry.h"
#include "compress/shards.h"
#include "tests/cpp/contract/levels_world.h"
#include "tests/cpp/unit/node_members.h"

namespace roundelay::compress::quantised {
namespace {

using collective::levels::Tree;

TechniquePtr make() { return make_technique("quantised").value(); }

std::vector<contract::ClusterShape> shapes() {
  return {contract::nodes_of(2, 1),  contract::nodes_of(3, 1),        contract::nodes_of(2, 2),
          contract::nodes_of(3, 2),  contract::by_factors({2, 2, 2}), contract::by_factors({2, 3, 2}),
          contract::one_and_three(), contract::two_and_four()};
}

Gradients some_gradients(std::size_t ranks, std::size_t count, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Gradients made(ranks, std::vector<double>(count));
  for (auto& of_rank : made)
    for (double& one : of_rank) one = normal(random);
  return made;
}

void require_same_bits(const NodeMembers& group) {
  for (const auto& member : group.members)
    REQUIRE(std::memcmp(member->bytes.data(), group.members[0]->bytes.data(), member->bytes.size()) == 0);
}

// Takes steps, and then sends what is kept. Returns the largest difference of all sums from the gradients'.
double imbalance(const Tree& tree, std::size_t count, const collective::Reduction& how, int steps,
                 double scale) {
  std::mt19937 random(static_cast<unsigned>(count));
  NodeMembers group(tree);
  const TechniquePtr technique = make();
  group.set_up(*technique, how, count);
  std::vector<double> balance(count);
  for (int step = 0; step <= steps; ++step) {
    Gradients gradients = some_gradients(group.members.size(), count, random);
    if (step == steps) gradients = Gradients(group.members.size(), std::vector<double>(count));
    bring(group, gradients);
    for (const auto& member : group.members) {  // as their type has them
      const std::vector<double> had = elements(*member);
      for (std::size_t i = 0; i < count; ++i) balance[i] += had[i] * scale;
    }
    if (step == steps)
      group.run_dense(technique.get());
    else
      group.run(*technique);
    require_same_bits(group);
    const std::vector<double> result = elements(*group.members[0]);
    for (std::size_t i = 0; i < count; ++i) balance[i] -= result[i];
  }
  double most = 0;
  for (const double one : balance) most = std::max(most, std::fabs(one));
  return most;
}

TEST_CASE("quantised loses nothing, and ranks have the same bits", "[technique][quantised]") {
  for (const auto& shape : shapes()) {
    for (const std::size_t count : {1, 255, 1000, 3001}) {
      INFO(shape.name << ", " << count << " elements");
      const int ranks = shape.size();
      CHECK(imbalance(shape.tree, count, {DType::kFloat32, ReduceOp::kSum}, 30, 1) < 1e-3);
      const collective::Reduction average{DType::kFloat32, ReduceOp::kSum, {}, {1.0, ranks}};
      CHECK(imbalance(shape.tree, count, average, 30, 1.0 / ranks) < 1e-3);
    }
  }
}

TEST_CASE("a prescale acts on what goes in 8 bits, once", "[technique][quantised]") {
  const collective::Reduction how{DType::kFloat32, ReduceOp::kSum, {0.5, 1}, {0.25, 1}};
  CHECK(imbalance(contract::by_factors({2, 2, 2}).tree, 700, how, 10, 0.125) < 1e-3);
}

TEST_CASE("a sum is within the scales' halves of the dense one", "[technique][quantised]") {
  for (const auto& shape : shapes()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      INFO(shape.name << ", " << name_of(dtype));
      constexpr std::size_t kCount = 2000;
      std::mt19937 random(7);
      NodeMembers group(shape.tree);
      const TechniquePtr technique = make();
      group.set_up(*technique, {dtype, ReduceOp::kSum, {}, {1.0, shape.size()}}, kCount);
      const Gradients gradients = some_gradients(group.members.size(), kCount, random);
      bring(group, gradients);
      group.run(*technique);
      require_same_bits(group);
      const std::vector<double> result = elements(*group.members[0]);
      for (std::size_t i = 0; i < kCount; ++i) {
        double mean = 0;
        for (const auto& of_rank : gradients) mean += of_rank[i] / shape.size();
        REQUIRE(std::fabs(result[i] - mean) < 0.06);  // magnitudes up to 4: a scale is 4 / 127
      }
    }
  }
}

TEST_CASE("between nodes goes a quarter of the bytes", "[technique][quantised]") {
  constexpr std::size_t kCount = 600000;
  for (const auto& shape : shapes()) {
    INFO(shape.name);
    NodeMembers group(shape.tree);
    const TechniquePtr technique = make();
    group.set_up(*technique, {DType::kFloat32, ReduceOp::kSum}, kCount);
    group.run(*technique);
    std::size_t sent = 0;
    for (const auto& member : group.members) sent += member->wire_bytes;
    // Each element goes to one rank on the way in, from all other nodes, and back.
    const double nodes = static_cast<double>(shape.tree.front().size());
    CHECK(static_cast<double>(sent) == Approx(2 * (nodes - 1) * kCount * 65 / 64).epsilon(0.01));
  }
}

// Returns the largest difference of a run's sums from those of the gradients.
double error_of(const NodeMembers& group, const Gradients& gradients) {
  const std::vector<double> result = elements(*group.members[0]);
  double most = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    double sum = 0;
    for (const auto& of_rank : gradients) sum += of_rank[i];
    const double error = std::fabs(result[i] - sum);
    if (!(error <= most)) most = error;  // NaN, too
  }
  return most;
}

TEST_CASE("an overflow makes its block NaN, of which the next run has nothing", "[technique][quantised]") {
  constexpr std::size_t kCount = 1000;
  constexpr double kSpike = 1e6;  // in the block of the overflow
  std::mt19937 random(6);
  for (const auto& shape : shapes()) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan(""), 3e38}) {
      for (const std::size_t at : {std::size_t{0}, std::size_t{520}, std::size_t{998}}) {
        NodeMembers group(shape.tree);
        const TechniquePtr technique = make();
        group.set_up(*technique, {DType::kFloat32, ReduceOp::kSum}, kCount);
        for (int step = 0; step < 5; ++step) {
          Gradients gradients = some_gradients(group.members.size(), kCount, random);
          if (step == 3) {
            gradients.front()[at] = gradients.back()[at] = bad;  // 3e38 is finite, twice it is not
            gradients.back()[at + 1] = kSpike;
          }
          bring(group, gradients);
          group.run(*technique);
          require_same_bits(group);
          INFO(shape.name << ", step " << step << ", element " << at << " is " << bad);
          REQUIRE(std::isfinite(elements(*group.members[0])[at]) == (step != 3));
          if (step != 3) REQUIRE(error_of(group, gradients) < 0.12 * shape.size());
        }
      }
    }
  }
}

TEST_CASE("an overflow does not stay in the padding between parameters", "[technique][quantised]") {
  constexpr std::size_t kCount = 1000;
  const std::vector<Slice> parameters{{16, 300}, {320, 5}, {328, 600}};
  for (const auto& shape : shapes()) {
    NodeMembers group(shape.tree);
    const TechniquePtr technique = make();
    group.set_up(*technique, {DType::kFloat32, ReduceOp::kSum}, kCount);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t m = 0; m < group.members.size(); ++m) {
        TechniqueMember& member = *group.members[m];
        member.bucket.parameters = parameters;
        for (const Slice& slice : parameters)
          std::fill_n(member.elements<float>() + slice.first, slice.count, 1.0F);
        if (step == 0 && m == 1) member.elements<float>()[320] = std::numeric_limits<float>::infinity();
      }
      group.run(*technique);
    }
    require_same_bits(group);
    const std::vector<double> result = elements(*group.members[0]);
    for (const Slice& slice : parameters) {
      for (std::size_t i = slice.first; i < slice.first + slice.count; ++i)
        REQUIRE(std::fabs(result[i] - shape.size()) < 0.1 * shape.size());
    }
  }
}

TEST_CASE("on one node quantised is the dense allreduce", "[technique][quantised]") {
  std::mt19937 random(8);
  const Gradients gradients = some_gradients(3, 100, random);
  NodeMembers group(contract::nodes_of(1, 3).tree), densely(contract::nodes_of(1, 3).tree);
  const TechniquePtr technique = make();
  for (NodeMembers* one : {&group, &densely}) {
    one->set_up(*technique, {DType::kFloat32, ReduceOp::kSum}, 100);
    bring(*one, gradients);
  }
  group.run(*technique);
  densely.run_dense();
  CHECK(elements(*group.members[0]) == elements(*densely.members[0]));
}

TEST_CASE("parts are whole blocks, and the last ones may be empty", "[technique][quantised]") {
  const std::vector<Slice> parts = parts_of({512, 600}, 2);
  CHECK((parts[0].first == 512 && parts[0].count == 512 && parts[1].first == 1024 && parts[1].count == 88));
  const std::vector<Slice> few = parts_of({0, 300}, 4);
  CHECK((few[0].count == 256 && few[1].count == 44 && few[2].count == 0 && few[3].count == 0));
  const std::array levels = {2, 2};
  CHECK(leaves_of({0, 1025}, levels).size() == 4);
  CHECK(message_bytes(parts) == 520 + 92);
}

TEST_CASE("quantised says which buckets it cannot serve, and what it keeps", "[technique][quantised]") {
  CHECK(make()->check({10, DType::kInt32, {}}).message() ==
        "technique 'quantised' needs gradients of fp32 or a half type, not int32");
  CHECK(!make()->check({10, DType::kFloat64, {}}).ok());
  CHECK(make()->check({10, DType::kBFloat16, {}}).ok());
  const std::array levels = {4, 2};
  CHECK(make()->state_bytes(10, DType::kBFloat16, levels) == 12);
}

}  // namespace
}  // namespace roundelay::compress::quantised
