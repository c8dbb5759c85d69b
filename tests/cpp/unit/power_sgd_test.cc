// power_sgd over the inproc fabric, beside a slow model: what it sends, what it keeps, and that nothing is
// lost.
#include <algorithm>
#include <limits>
#include <random>

#include "compress/give_back.h"
#include "compress/registry.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"
#include "tests/cpp/unit/power_sgd_model.h"

namespace roundelay::compress::power_sgd {
namespace {

namespace reference = kernels::reference;
using collective::Reduction;

constexpr Shape kShapes[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {1, 2}, {1, 4}, {2, 2}, {3, 2}, {2, 3}};

TechniquePtr make(const std::string& text) {
  auto made = make_technique(text);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::move(*made);
}

// Three matrices, two parameters that go densely, and padding: 9 x 7, 3, 5 x 12, 4 x 4, 2.
const std::vector<Slice> kParameters = {{0, 63}, {64, 3}, {68, 60}, {128, 16}, {144, 2}};
constexpr std::size_t kCount = 148;
const std::string kColumns = "7+0+12+4+0";

class Group {
 public:
  Group(Shape shape, const std::string& text, Reduction reduction,
        std::vector<Slice> parameters = kParameters, std::size_t count = kCount)
      : technique(make(text)), how(reduction), slices(std::move(parameters)), members(shape) {
    REQUIRE(technique->check({count, how.dtype, slices}).ok());
    members.set_up(*technique, how, count);
    for (auto& member : members.members) member->bucket.parameters = slices;
  }

  [[nodiscard]] std::size_t size() const { return members.members.size(); }
  void write(std::size_t rank, std::size_t i, double value) {
    reference::write(how.dtype, members.members[rank]->bytes.data() + i * size_of(how.dtype), value);
  }
  double read(std::size_t rank, std::size_t i) {
    return reference::read(how.dtype, members.members[rank]->bytes.data() + i * size_of(how.dtype));
  }
  // Gives all ranks random gradients, and returns their sums; padding stays zero.
  std::vector<double> fill(std::mt19937& random) {
    std::vector<double> sums(members.members[0]->bucket.count);
    for (std::size_t rank = 0; rank < size(); ++rank) {
      for (const Slice& slice : slices) {
        for (std::size_t i = slice.first; i < slice.first + slice.count; ++i) {
          write(rank, i, std::ldexp(static_cast<double>(random()), -31) - 1.0);
          sums[i] += read(rank, i);
        }
      }
    }
    return sums;
  }
  void run() {
    members.run(*technique);
    for (auto& member : members.members) REQUIRE(member->bytes == members.members.front()->bytes);
  }
  // Returns what all ranks keep of each element: they give it back to buckets of zeros.
  std::vector<double> kept() {
    std::vector<double> sums(members.members[0]->bucket.count);
    for (auto& member : members.members) {
      std::vector<double> state = member->state;
      Bytes zeros(member->bytes.size());
      Bucket copy = member->bucket;
      copy.buffer = {zeros.data(), 0, zeros.size()};
      copy.state = {reinterpret_cast<std::byte*>(state.data()), member->bucket.state.size()};
      REQUIRE(compress::give_back(*technique, member->workspace, copy).ok());
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] += reference::read(how.dtype, zeros.data() + i * size_of(how.dtype));
    }
    return sums;
  }

  const TechniquePtr technique;
  const Reduction how;
  const std::vector<Slice> slices;
  NodeMembers members;
};

Dense matrix_in(const std::vector<double>& elements, const Slice& slice, std::size_t columns) {
  Dense made(slice.count / columns, columns);
  std::copy_n(elements.begin() + static_cast<std::ptrdiff_t>(slice.first), slice.count, made.at.begin());
  return made;
}

void require_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("element " << i << ": " << found[i] << ", expected " << expected[i]);
    REQUIRE(std::abs(found[i] - expected[i]) <= tolerance);
  }
}

TEST_CASE("power_sgd is the paper's algorithm on the sums of all ranks", "[technique][power_sgd]") {
  const DType dtype = GENERATE(DType::kFloat64, DType::kFloat32);
  const double tolerance = dtype == DType::kFloat64 ? 1e-9 : 2e-3;
  for (const Shape shape : kShapes) {
    for (const std::size_t rank : {1, 2, 3}) {
      INFO(shape.nodes << " nodes of " << shape.members << ", rank " << rank);
      std::mt19937 random(static_cast<unsigned>(rank));
      const int size = shape.size();
      const bool average = rank != 2;
      Group group(shape, "power_sgd:columns=" + kColumns + ",seed=9,rank=" + std::to_string(rank),
                  {dtype, ReduceOp::kSum, {}, {1.0, average ? size : 1}});
      std::vector<MatrixModel> models = {
          {9, 7, rank, 9}, {5, 12, rank, 9 + 7 * rank}, {4, 4, rank, 9 + 19 * rank}};
      const std::size_t slices[] = {0, 2, 3}, columns[] = {7, 12, 4};
      for (int step = 0; step < 5; ++step) {
        const std::vector<double> sums = group.fill(random);
        group.run();
        std::vector<double> expected = sums, kept(kCount);
        for (std::size_t m = 0; m < models.size(); ++m) {
          const Slice& slice = kParameters[slices[m]];
          const Dense sent = models[m].step(matrix_in(sums, slice, columns[m]));
          const auto first = static_cast<std::ptrdiff_t>(slice.first);
          std::copy(sent.at.begin(), sent.at.end(), expected.begin() + first);
          std::copy(models[m].kept.at.begin(), models[m].kept.at.end(), kept.begin() + first);
        }
        std::vector<double> found(kCount);
        for (std::size_t i = 0; i < kCount; ++i) found[i] = group.read(0, i) * (average ? size : 1);
        require_near(found, expected, tolerance);
        require_near(group.kept(), kept, tolerance);
      }
    }
  }
}

TEST_CASE("with a rank that is large enough nothing is kept", "[technique][power_sgd]") {
  for (const Shape shape : kShapes) {
    std::mt19937 random(2);
    Group group(shape, "power_sgd:columns=" + kColumns + ",rank=7", {});
    for (int step = 0; step < 3; ++step) {
      const std::vector<double> sums = group.fill(random);
      group.run();
      std::vector<double> found(kCount);
      for (std::size_t i = 0; i < kCount; ++i) found[i] = group.read(0, i);
      require_near(found, sums, 1e-4);
      require_near(group.kept(), std::vector<double>(kCount), 1e-4);
    }
  }
}

TEST_CASE("what comes is sent or kept, by any wire, whenever a flush comes", "[technique][power_sgd]") {
  struct Case {
    DType dtype;
    std::string wire;
    double tolerance;
  };
  const auto [dtype, wire, tolerance] =
      GENERATE(Case{DType::kFloat64, "none", 1e-11}, Case{DType::kFloat32, "none", 1e-3},
               Case{DType::kFloat32, "bf16", 1e-3}, Case{DType::kBFloat16, "none", 1.0});
  CAPTURE(name_of(dtype), wire);
  for (const Shape shape : {Shape{1, 1}, Shape{3, 1}, Shape{1, 3}, Shape{2, 2}}) {
    std::mt19937 random(3);
    Group group(shape, "power_sgd:columns=" + kColumns + ",rank=1,wire=" + wire,
                {dtype, ReduceOp::kSum, {}, {}});
    std::vector<double> balance(kCount);
    for (int step = 0; step < 50; ++step) {
      INFO(shape.nodes << " nodes of " << shape.members << ", step " << step);
      const std::vector<double> sums = group.fill(random);
      const bool flush = step % 20 == 13;
      flush ? group.members.run_dense(group.technique.get()) : group.run();
      const std::vector<double> left = group.kept();
      std::vector<double> rest(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        balance[i] += sums[i] - group.read(0, i);
        rest[i] = balance[i] - left[i];
      }
      for (const std::size_t parameter : {0, 2, 3}) {  // the wire rounds what goes densely
        const Slice& slice = kParameters[parameter];
        const auto first = rest.begin() + static_cast<std::ptrdiff_t>(slice.first);
        const auto count = static_cast<std::ptrdiff_t>(slice.count);
        const std::vector<double> lost(first, first + count);
        require_near(lost, std::vector<double>(slice.count), tolerance);
      }
      if (!flush) continue;
      for (auto& member : group.members.members)
        REQUIRE(member->state == std::vector<double>(member->state.size(), 0.0));
    }
  }
}

// Returns a matrix with these singular values.
Dense with_singular_values(std::size_t rows, std::size_t columns, const std::vector<double>& values,
                           std::mt19937& random) {
  Dense left(rows, values.size()), right(columns, values.size());
  for (Dense* one : {&left, &right}) {
    for (double& number : one->at) number = std::ldexp(static_cast<double>(random()), -31) - 1.0;
    orthonormalise(*one);
  }
  for (std::size_t k = 0; k < values.size(); ++k)
    for (std::size_t i = 0; i < rows; ++i) left(i, k) *= values[k];
  return left * right.transposed();
}

TEST_CASE("the warm start finds the best approximation of a constant matrix (Eckart and Young)",
          "[technique][power_sgd]") {
  constexpr std::size_t kRows = 20, kColumnsOfIt = 14, kRank = 2;
  std::mt19937 random(5);
  const Dense constant = with_singular_values(kRows, kColumnsOfIt, {5, 3, 1.5, 1, 0.5}, random);
  const double best = std::sqrt(1.5 * 1.5 + 1 + 0.25);
  const auto fill = [&](Group& group) {
    for (std::size_t rank = 0; rank < group.size(); ++rank)
      for (std::size_t i = 0; i < constant.at.size(); ++i)
        group.write(rank, i, constant.at[i] / static_cast<double>(group.size()));
  };
  const std::vector<Slice> parameters = {{0, constant.at.size()}};
  for (const Shape shape : {Shape{1, 1}, Shape{2, 2}}) {
    Group group(shape, "power_sgd:columns=14,rank=2", {DType::kFloat64, ReduceOp::kSum, {}, {}}, parameters,
                constant.at.size());
    double error = 0, before = std::numeric_limits<double>::infinity();
    for (int step = 0; step < 30; ++step) {
      for (auto& member : group.members.members) {  // without error feedback
        const std::size_t kept = (constant.at.size() + static_cast<std::size_t>(shape.members) - 1) /
                                 static_cast<std::size_t>(shape.members);
        std::fill_n(member->state.begin(), kept, 0.0);
      }
      fill(group);
      group.run();
      Dense sent(kRows, kColumnsOfIt);
      for (std::size_t i = 0; i < sent.at.size(); ++i) sent.at[i] = group.read(0, i);
      error = (constant - sent).norm();
      REQUIRE(error >= best - 1e-9);
      REQUIRE(error <= before + 1e-9);
      before = error;
    }
    CHECK(error <= best * (1 + 1e-6));
  }
  static_assert(kRank == 2);
}

TEST_CASE("error feedback sends a constant matrix in the mean", "[technique][power_sgd]") {
  std::mt19937 random(6);
  const Dense constant = with_singular_values(12, 10, {4, 3, 2, 1}, random);
  Group group({2, 2}, "power_sgd:columns=10,rank=1", {DType::kFloat64, ReduceOp::kSum, {}, {1.0, 4}},
              {{0, 120}}, 120);
  constexpr int kSteps = 200;
  Dense sum(12, 10);
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t rank = 0; rank < 4; ++rank)
      for (std::size_t i = 0; i < 120; ++i) group.write(rank, i, constant.at[i]);
    group.run();
    for (std::size_t i = 0; i < 120; ++i) sum.at[i] += group.read(0, i) / kSteps;
  }
  CHECK((constant - sum).norm() < 0.1);  // what is kept in the end, by the number of steps
}

TEST_CASE("matrices that are zero or of smaller rank lose no factor for ever", "[technique][power_sgd]") {
  for (const Shape shape : {Shape{1, 1}, Shape{2, 1}, Shape{2, 2}}) {
    std::mt19937 random(7);
    Group group(shape, "power_sgd:columns=10,rank=2", {}, {{0, 120}}, 120);
    const Dense zero(12, 10), one = with_singular_values(12, 10, {3}, random),
                              two = with_singular_values(12, 10, {3, 2}, random);
    for (const Dense* matrix : {&zero, &zero, &one, &one, &zero, &two, &two, &two, &two}) {
      for (std::size_t rank = 0; rank < group.size(); ++rank)
        for (std::size_t i = 0; i < 120; ++i)
          group.write(rank, i, matrix->at[i] / static_cast<double>(group.size()));
      group.run();
      std::vector<double> found(120);
      for (std::size_t i = 0; i < 120; ++i) found[i] = group.read(0, i);
      require_near(found, matrix->at, 1e-5);
    }
  }
}

TEST_CASE("an overflow on one rank shows on all, in its matrix alone, and is not kept",
          "[technique][power_sgd]") {
  for (const Shape shape : kShapes) {
    for (const double wrong : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      INFO(shape.nodes << " nodes of " << shape.members);
      std::mt19937 random(8);
      Group group(shape, "power_sgd:columns=" + kColumns + ",rank=2", {});
      group.fill(random);
      group.run();
      const std::vector<double> kept = group.kept();
      group.fill(random);
      group.write(group.size() - 1, 70, wrong);
      group.run();
      const Slice& hit = kParameters[2];
      for (std::size_t i = 0; i < kCount; ++i) {
        const bool inside = i >= hit.first && i < hit.first + hit.count;
        REQUIRE(std::isnan(group.read(0, i)) == inside);
      }
      const std::vector<double> after = group.kept();
      for (std::size_t i = hit.first; i < hit.first + hit.count; ++i) REQUIRE(after[i] == kept[i]);
      const std::vector<double> sums = group.fill(random);
      group.run();
      const std::vector<double> rest = group.kept();
      for (std::size_t i = hit.first; i < hit.first + hit.count; ++i)
        REQUIRE(std::abs(group.read(0, i) + rest[i] - sums[i] - kept[i]) < 1e-4);
    }
  }
}

TEST_CASE("only factors and dense elements go between nodes", "[technique][power_sgd]") {
  for (const Shape shape : {Shape{2, 1}, Shape{4, 1}, Shape{2, 2}, Shape{3, 2}}) {
    for (const std::size_t rank : {2, 4}) {
      std::mt19937 random(9);
      // Messages are long, so that their algorithm is one that sends the least.
      const std::vector<Slice> parameters = {{0, 20000 * 50}, {1000000, 60000}};
      Group group(shape, "power_sgd:columns=50+0,rank=" + std::to_string(rank), {}, parameters, 1060000);
      group.fill(random);
      group.run();
      std::vector<double> sent(static_cast<std::size_t>(shape.nodes));
      for (std::size_t i = 0; i < group.size(); ++i)
        sent[i % sent.size()] += static_cast<double>(group.members.members[i]->wire_bytes);
      const double elements = static_cast<double>(rank) * (20000 + 50) + 60000;
      const double all = 2.0 * (shape.nodes - 1) * 4 * elements;  // of all nodes: 2 (m - 1) / m of each
      double total = 0;
      for (const double one : sent) total += one;
      INFO(shape.nodes << " nodes of " << shape.members << ", rank " << rank << ": " << total / all);
      CHECK(std::abs(total / all - 1) < 0.02);
    }
  }
}

TEST_CASE("power_sgd says which buckets it cannot serve", "[technique][power_sgd]") {
  const std::vector<Slice> parameters = {{0, 12}, {12, 5}};
  const auto wrong = [&](const std::string& text, DType dtype = DType::kFloat32) {
    return make(text)->check({17, dtype, parameters}).message();
  };
  CHECK(wrong("power_sgd:columns=4+0").empty());
  CHECK(wrong("power_sgd:columns=4+0", DType::kInt32) ==
        "technique 'power_sgd' needs floating gradients, not int32");
  CHECK(wrong("power_sgd:columns=4") ==
        "technique 'power_sgd': columns has 1 numbers, but the bucket has 2 parameters");
  CHECK(wrong("power_sgd").find("columns has 0 numbers") != std::string::npos);
  CHECK(wrong("power_sgd:columns=0+4") ==
        "technique 'power_sgd': parameter 1 has 5 elements, which are no rows of 4");
  CHECK(make("power_sgd:columns=4+0,rank=2")->kept_numbers(17, {}) == 17);
  CHECK(make("power_sgd:columns=4+0,rank=2")->kept_numbers(17, std::array{2, 3}) == 9);
  CHECK(make("power_sgd:columns=4+0,rank=2")->state_bytes(17, DType::kFloat16, std::array{2}) == 4 * (9 + 8));
}

}  // namespace
}  // namespace roundelay::compress::power_sgd
