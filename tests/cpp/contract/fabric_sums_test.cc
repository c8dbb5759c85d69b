// The promises of docs/fabrics.md about the bits of sums, for each algorithm of allreduce.
#include <algorithm>
#include <string_view>
#include <utility>

#include "collective/inproc/hub.h"
#include "tests/cpp/algorithm_names.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"

namespace roundelay::contract {
namespace {

constexpr DType kFloating[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Sums the elements from `begin` to `end` of vectors that are always the same. Returns the sum on member 0;
// the contract tests that all members have the same bits.
std::vector<std::byte> sum_of(std::string_view algorithm, int size, DType dtype, std::size_t begin,
                              std::size_t end) {
  const auto hub = std::make_shared<collective::InprocHub>(size);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int index = 0; index < size; ++index) {
    fabrics.push_back(collective::make_inproc_fabric(hub, {.ranks = first_members(size), .index = index},
                                                     always(algorithm)));
  }
  std::vector<std::byte> result;
  const std::string error = run_on_threads(fabrics, [&](Fabric& fabric) {
    const auto all = random_elements(end, dtype, static_cast<unsigned>(fabric.group().index));
    std::vector<std::byte> data(all.begin() + static_cast<std::ptrdiff_t>(begin * size_of(dtype)), all.end());
    AllreduceCall call = allreduce_over(data.data(), data.size());
    call.dtype = dtype;
    call.scale = {1.0, 3};
    std::string bad = run_call(fabric, call);
    if (fabric.group().index == 0) result = std::move(data);
    return bad;
  });
  REQUIRE(error == "");
  return result;
}

TEST_CASE("sums have the same bits alone and among others, but for the ring", "[fabric][sums]") {
  constexpr std::size_t kBegin = 70001, kEnd = 70501;  // beyond the first pieces
  for (int size = 2; size <= largest_of_threads(); ++size) {
    for (const DType dtype : kFloating) {
      for (const std::string_view algorithm : algorithm_names(Operation::kAllreduce)) {
        if (algorithm == "ring") continue;
        const auto many = sum_of(algorithm, size, dtype, 0, kEnd);
        const auto alone = sum_of(algorithm, size, dtype, kBegin, kEnd);
        INFO(algorithm << " of " << name_of(dtype) << " by " << size);
        CHECK(std::equal(alone.rbegin(), alone.rend(), many.rbegin()));
      }
    }
  }
}

TEST_CASE("algorithms that the table exchanges by size have the same sums", "[fabric][sums]") {
  const std::vector<std::vector<std::string_view>> kinds = {
      {"direct", "pairwise"}, {"recursive_doubling", "halving_doubling", "binomial_tree"}};
  for (int size = 2; size <= largest_of_threads(); ++size) {
    for (const DType dtype : kFloating) {
      for (const auto& names : kinds) {
        const auto first = sum_of(names.front(), size, dtype, 0, 5003);
        for (const std::string_view name : names) {
          INFO(name << " of " << name_of(dtype) << " by " << size);
          CHECK(sum_of(name, size, dtype, 0, 5003) == first);
        }
      }
    }
  }
}

}  // namespace
}  // namespace roundelay::contract
