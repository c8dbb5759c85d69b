// Technique half: the bits of casts around an allreduce in the half type.
#include <algorithm>
#include <cmath>
#include <random>

#include "compress/registry.h"
#include "kernels/kernels.h"
#include "tests/cpp/unit/technique_members.h"

namespace roundelay::compress {
namespace {

using collective::Reduction;

TechniquePtr make(const std::string& text) {
  auto made = make_technique(text);
  REQUIRE(made.ok());
  return std::move(*made);
}

}  // namespace

TEST_CASE("half has the bits of casts around an allreduce in the half type", "[technique]") {
  std::mt19937 random(3);
  for (const auto& [text, wire] :
       {std::pair{"half", DType::kBFloat16}, std::pair{"half:wire=fp16", DType::kFloat16}}) {
    const TechniquePtr technique = make(text);
    for (const int size : {1, 2, 3, 4}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{4099}}) {
        TechniqueMembers cast(size), halves(size);
        const Reduction reduction{DType::kFloat32, ReduceOp::kSum, {}, {1.0, size}};
        Reduction in_half = reduction;
        in_half.dtype = wire;
        cast.set_up(*technique, reduction, count);
        halves.set_up(*technique, in_half, count);
        for (std::size_t m = 0; m < cast.members.size(); ++m) {
          TechniqueMember& member = *cast.members[m];
          for (std::size_t i = 0; i < count; ++i)
            member.elements<float>()[i] =
                static_cast<float>(std::ldexp(static_cast<double>(random()) - 2e9, -28));
          kernels::cast(halves.members[m]->bytes.data(), wire, member.bytes.data(), DType::kFloat32, count);
        }
        cast.run(*technique);
        halves.run_dense();
        for (std::size_t m = 0; m < cast.members.size(); ++m) {
          std::vector<float> expected(count);
          kernels::cast(reinterpret_cast<std::byte*>(expected.data()), DType::kFloat32,
                        halves.members[m]->bytes.data(), wire, count);
          INFO(text << ", " << count << " on " << size);
          REQUIRE(std::equal(expected.begin(), expected.end(), cast.members[m]->elements<float>()));
        }
        CHECK(cast.members.front()->bucket.state.empty());
      }
    }
  }
}

TEST_CASE("half scales before it casts, and leaves halves as they are", "[technique]") {
  const TechniquePtr technique = make("half:wire=fp16");
  TechniqueMembers group(2);
  group.set_up(*technique, {DType::kFloat32, ReduceOp::kSum, {0.25, 1}, {}}, 3);
  for (auto& member : group.members)
    std::fill_n(member->elements<float>(), 3, 100000.0F);  // fp16 ends at 65504
  group.run(*technique);
  for (auto& member : group.members) CHECK(member->elements<float>()[0] == 50000.0F);

  TechniqueMembers halves(2), densely(2);
  const Reduction reduction{DType::kBFloat16, ReduceOp::kSum, {0.5, 1}, {}};
  halves.set_up(*technique, reduction, 5);
  densely.set_up(*technique, reduction, 5);
  for (TechniqueMembers* each : {&halves, &densely})
    for (auto& member : each->members) std::fill(member->bytes.begin(), member->bytes.end(), std::byte{0x41});
  halves.run(*technique);
  densely.run_dense();
  for (std::size_t m = 0; m < halves.members.size(); ++m)
    CHECK(halves.members[m]->bytes == densely.members[m]->bytes);
  CHECK_FALSE(technique->check({3, DType::kInt32, {}}).ok());
}

}  // namespace roundelay::compress
