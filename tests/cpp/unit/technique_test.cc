// Techniques over the inproc fabric: what they send, what they keep, and that nothing is lost.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/cpp/techniques.h"
#include "tests/cpp/unit/kernels_reference.h"
#include "tests/cpp/unit/technique_members.h"

namespace roundelay::compress {
namespace {

using collective::Reduction;
namespace reference = kernels::reference;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Fills all members with random numbers, the same ones in both groups.
void fill_alike(TechniqueMembers& one, TechniqueMembers& other, DType dtype, std::mt19937& random) {
  for (std::size_t m = 0; m < one.members.size(); ++m) {
    TechniqueMember& member = *one.members[m];
    for (std::size_t i = 0; i < member.bucket.count; ++i) {
      const double value = random() % 8 == 0 ? -0.0 : std::ldexp(static_cast<double>(random()) - 2e9, -31);
      reference::write(dtype, member.bytes.data() + i * size_of(dtype), value);
    }
    std::copy(member.bytes.begin(), member.bytes.end(), other.members[m]->bytes.begin());
  }
}

void require_same_elements(const TechniqueMembers& one, const TechniqueMembers& other) {
  for (std::size_t m = 0; m < one.members.size(); ++m)
    REQUIRE(one.members[m]->bytes == other.members[m]->bytes);
}

TEST_CASE("with one part, cyclic has the bits of a dense allreduce", "[technique]") {
  std::mt19937 random(1);
  const TechniquePtr technique = technique_of("cyclic:parts=1");
  for (const int size : {1, 2, 3, 4}) {
    for (const DType dtype : kFloating) {
      for (const std::size_t count : {1, 7, 4096, 4097, 10007}) {
        TechniqueMembers by_parts(size), densely(size);
        const Reduction reduction{dtype, ReduceOp::kSum, {}, {1.0, size}};
        by_parts.set_up(*technique, reduction, count);
        densely.set_up(*technique, reduction, count);
        for (int step = 0; step < 3; ++step) {
          INFO(count << " of " << name_of(dtype) << " on " << size << ", step " << step);
          fill_alike(by_parts, densely, dtype, random);
          by_parts.run(*technique);
          densely.run_dense();
          require_same_elements(by_parts, densely);
        }
      }
    }
  }
}

TEST_CASE("negate has the sums of a dense allreduce", "[technique]") {
  std::mt19937 random(2);
  const TechniquePtr technique = technique_of("negate");
  for (const int size : {1, 2, 3, 4}) {
    for (const DType dtype : kFloating) {
      TechniqueMembers negated(size), densely(size);
      const Reduction reduction{dtype, ReduceOp::kSum, {0.5, 1}, {1.0, size}};
      negated.set_up(*technique, reduction, 1001);
      densely.set_up(*technique, reduction, 1001);
      fill_alike(negated, densely, dtype, random);
      negated.run(*technique);
      densely.run_dense();
      for (auto* group : {&negated, &densely}) {
        for (auto& member : group->members) {  // a sum of zero may have another sign
          for (std::size_t i = 0; i < 1001; ++i) {
            std::byte* const at = member->bytes.data() + i * size_of(dtype);
            if (reference::read(dtype, at) == 0) reference::write(dtype, at, 0);
          }
        }
      }
      require_same_elements(negated, densely);
      CHECK(negated.members.front()->bucket.state.empty());
    }
  }
}

TEST_CASE("cyclic sends each element once in each round", "[technique]") {
  for (const std::size_t count : {1, 2, 3, 100, 12289}) {
    for (const std::size_t parts : {1, 2, 3, 7}) {
      const TechniquePtr technique = technique_of("cyclic:parts=" + std::to_string(parts));
      TechniqueMembers group(1);
      group.set_up(*technique, {}, count);
      std::vector<std::size_t> sent(count);
      for (std::size_t step = 0; step < 3 * parts; ++step) {
        float* const elements = group.members[0]->elements<float>();
        std::fill_n(elements, count, 1.0F);
        group.run(*technique);
        for (std::size_t i = 0; i < count; ++i) {
          // What is sent has waited since the element's last turn.
          if (elements[i] != 0) ++sent[i];
          if (elements[i] != 0 && step >= parts) REQUIRE(elements[i] == static_cast<float>(parts));
        }
      }
      INFO(count << " elements in " << parts << " parts");
      REQUIRE(sent == std::vector<std::size_t>(count, 3));
    }
  }
}

// Adds up, for each element, what the ranks brought and what they got.
struct Balance {
  explicit Balance(std::size_t count) : came(count), sent(count) {}
  std::vector<double> came, sent;
};

void fill_with_integers(TechniqueMembers& group, Balance& balance, std::mt19937& random) {
  for (auto& member : group.members) {
    for (std::size_t i = 0; i < member->bucket.count; ++i) {
      const auto value = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
      member->elements<float>()[i] = value;
      balance.came[i] += static_cast<double>(value);
    }
  }
}

void take_results(TechniqueMembers& group, Balance& balance) {
  for (auto& member : group.members) REQUIRE(member->bytes == group.members.front()->bytes);
  for (std::size_t i = 0; i < balance.sent.size(); ++i)
    balance.sent[i] += static_cast<double>(group.members.front()->elements<float>()[i]);
}

// Returns what all ranks keep of each element: they give it back to buckets of zeros.
std::vector<double> kept(TechniqueMembers& group, const Technique& technique) {
  std::vector<double> sum(group.members.front()->bucket.count);
  for (auto& member : group.members) {
    std::vector<double> state = member->state;
    Bytes zeros(member->bytes.size());
    Bucket copy = member->bucket;
    copy.buffer = {zeros.data(), 0, zeros.size()};
    copy.state = {reinterpret_cast<std::byte*>(state.data()), member->bucket.state.size()};
    REQUIRE(compress::give_back(technique, member->workspace, copy).ok());
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += static_cast<double>(reinterpret_cast<float*>(zeros.data())[i]);
  }
  return sum;
}

TEST_CASE("nothing is lost or sent twice, whenever a flush comes", "[technique]") {
  std::mt19937 random(3);
  for (const int size : {1, 2, 3, 4}) {
    for (const std::size_t count : {1, 5, 1023, 8193}) {
      const std::string text = "cyclic:parts=" + std::to_string(1 + random() % 6);
      const TechniquePtr technique = technique_of(text);
      TechniqueMembers group(size);
      group.set_up(*technique, {}, count);
      Balance balance(count);
      bool kept_something = false;
      for (int step = 0; step < 50; ++step) {
        INFO(text << ", " << count << " elements on " << size << " ranks, step " << step);
        const bool flush = random() % 10 == 0;
        fill_with_integers(group, balance, random);
        if (flush) {
          group.run_dense(technique.get());
        } else {
          group.run(*technique);
        }
        take_results(group, balance);
        const std::vector<double> left = kept(group, *technique);
        for (std::size_t i = 0; i < count; ++i) REQUIRE(balance.sent[i] + left[i] == balance.came[i]);
        const bool none = std::all_of(left.begin(), left.end(), [](double one) { return one == 0; });
        kept_something = kept_something || !none;
        if (!flush) continue;
        REQUIRE(none);
        for (auto& member : group.members)
          REQUIRE(member->state == std::vector<double>(member->state.size(), 0.0));
      }
      REQUIRE((kept_something || text == "cyclic:parts=1" || count == 1));
    }
  }
}

TEST_CASE("a residual has the units of a rank's part: scales act once, when it is sent", "[technique]") {
  const TechniquePtr technique = technique_of("cyclic:parts=2");
  TechniqueMembers group(2);
  group.set_up(*technique, {DType::kFloat32, ReduceOp::kSum, {0.5, 1}, {1.0, 2}}, 2);
  const auto step = [&] {
    for (auto& member : group.members) std::fill_n(member->elements<float>(), 2, 8.0F);
    group.run(*technique);
    const float* const elements = group.members[0]->elements<float>();
    return std::vector<float>(elements, elements + 2);
  };
  // The average of 8 * 0.5; then of two gradients each.
  CHECK(step() == std::vector<float>{4, 0});
  CHECK(step() == std::vector<float>{0, 8});
  CHECK(step() == std::vector<float>{8, 0});
  CHECK(kept(group, *technique) == std::vector<double>{0, 16});
}

TEST_CASE("what a half type's rounding loses stays in the residual", "[technique]") {
  std::mt19937 random(4);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const TechniquePtr technique = technique_of("cyclic:parts=3");
    TechniqueMembers group(1);
    constexpr std::size_t kCount = 1000;
    group.set_up(*technique, {dtype, ReduceOp::kSum, {}, {}}, kCount);
    TechniqueMember& member = *group.members.front();
    std::vector<double> came(kCount), sent(kCount);
    bool rounded = false;
    for (int step = 0; step < 30; ++step) {
      for (std::size_t i = 0; i < kCount; ++i) {
        const double value = static_cast<double>(random() % 4097) / 1024;
        reference::write(dtype, member.bytes.data() + i * 2, value);
        came[i] += reference::read(dtype, member.bytes.data() + i * 2);
      }
      group.run(*technique);
      const auto* const residual = reinterpret_cast<const float*>(member.bucket.state.data());
      for (std::size_t i = 0; i < kCount; ++i) {
        const double result = reference::read(dtype, member.bytes.data() + i * 2);
        sent[i] += result;
        rounded = rounded || (result != 0 && residual[i] != 0);
        REQUIRE(sent[i] + static_cast<double>(residual[i]) == came[i]);
      }
    }
    CHECK(rounded);
  }
}

TEST_CASE("a technique without memory ends with the reason and makes no call", "[technique]") {
  TechniqueMembers group(1);
  const TechniquePtr technique = technique_of("cyclic");
  group.set_up(*technique, {}, 10);
  TechniqueMember& member = *group.members.front();
  member.workspace.no_memory = true;
  member.task = technique->run(member.workspace, member.bucket);
  member.task.resume();
  REQUIRE(member.task.done());
  CHECK(member.task.status() == Status::unavailable("no memory"));
}

}  // namespace
}  // namespace roundelay::compress
