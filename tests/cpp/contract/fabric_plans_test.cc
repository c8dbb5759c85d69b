// A fabric over levels with several plans: each call takes the one that it asks for.
#include <cstdint>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/levels_world.h"

namespace roundelay::contract {
namespace {

using collective::levels::tree_of_factors;
using Asked = std::vector<std::uint32_t>;

constexpr std::size_t kCount = 50'003;
constexpr collective::LevelsCut kCut{.shard_bytes = 4096, .most_across = 2};

// Eight members: pairs, of which the main plan joins two at a time, and the other one all.
struct PlansWorld {
  PlansWorld() {
    for (int index = 0; index < 8; ++index) {
      collective::LevelsParts parts = main.of(index, kCut);
      collective::LevelsPlan own = other.of(index, kCut).main;
      own.stages.front() = parts.main.stages.front();
      parts.others.push_back(std::move(own));
      fabrics.push_back(collective::make_levels_fabric(std::move(parts)));
    }
  }

  InprocLevels main{tree_of_factors({2, 2, 2})}, other{tree_of_factors({2, 4})};
  std::vector<std::unique_ptr<Fabric>> fabrics;
};

std::vector<std::byte> own_part(const Fabric& fabric) {
  return random_elements(kCount, DType::kFloat32, static_cast<unsigned>(fabric.group().index));
}

AllreduceCall asking(std::vector<std::byte>& data, const Asked& factors) {
  AllreduceCall call = allreduce_over(data.data(), data.size());
  call.factors = factors;
  return call;
}

// Returns the bits of the first member's sum.
std::vector<std::byte> sum(const std::vector<std::unique_ptr<Fabric>>& fabrics, const Asked& factors) {
  std::vector<std::byte> result;
  const std::string error = run_on_threads(fabrics, [&](Fabric& fabric) {
    std::vector<std::byte> data = own_part(fabric);
    std::string wrong = run_call(fabric, asking(data, factors));
    if (fabric.group().index == 0) result = std::move(data);
    return wrong;
  });
  REQUIRE(error == "");
  return result;
}

TEST_CASE("plans: a call takes the one that it asks for, with its bits", "[fabric]") {
  const PlansWorld world;
  const auto alone = [](const std::vector<int>& factors) {
    return sum(LevelsWorld({"", tree_of_factors(factors), false}, kCut).fabrics, {});
  };
  const auto three = alone({2, 2, 2}), two = alone({2, 4});
  REQUIRE(three != two);  // they add in different orders
  CHECK(sum(world.fabrics, {}) == three);
  CHECK(sum(world.fabrics, {2, 4}) == two);
  CHECK(sum(world.fabrics, {2, 2, 2}) == three);
  CHECK(sum(world.fabrics, {4, 2}) == three);  // no such plan: the main one
  CHECK(world.fabrics.front()->capabilities().plans == 2);
}

TEST_CASE("plans: calls of different plans are under way at once", "[fabric]") {
  const std::vector<Asked> asked = {{2, 4}, {}, {2, 4}, {2, 2, 2}};
  const std::vector<std::string> named = {"levels 2x4", "levels 2x2x2", "levels 2x4", "levels 2x2x2"};
  const PlansWorld world;
  CHECK(run_on_threads(world.fabrics, [&](Fabric& fabric) -> std::string {
          std::vector<std::vector<std::byte>> data(asked.size());
          std::vector<std::unique_ptr<collective::PendingCall>> calls;
          for (std::size_t i = 0; i < asked.size(); ++i) {
            const auto own = static_cast<double>(i) + fabric.group().index;
            data[i] = encode(std::vector<double>(kCount, own), DType::kFloat32);
            auto started = fabric.start(asking(data[i], asked[i]));
            if (!started.ok()) return started.status().message();
            calls.push_back(std::move(started).value());
            if (calls.back()->algorithm() != named[i]) return "another plan's name";
          }
          for (std::size_t i = asked.size(); i-- > 0;) {  // a test of the last one moves all before it
            if (Status error = calls[i]->wait(); !error.ok()) return error.message();
            for (const double value : decode(data[i].data(), kCount, DType::kFloat32)) {
              if (value != 28.0 + 8.0 * static_cast<double>(i)) return "a wrong sum";
            }
          }
          return {};
        }) == "");
}

}  // namespace
}  // namespace roundelay::contract
