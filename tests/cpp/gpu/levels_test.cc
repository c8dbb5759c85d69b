// The fabric contract on device memory over two levels (NCCL inside the nodes, host memory between them), and
// the amount that travels between the nodes.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "gpu/gpu_levels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/gpu/levels_world.h"

namespace roundelay::gpu_test {
namespace {

using collective::AllreduceCall;
using collective::Fabric;
using contract::allreduce_over;
using contract::run_call;

struct Shape {
  int nodes, members;  // members per node
};

class LevelsMedium final : public contract::Medium {
 public:
  explicit LevelsMedium(Shape shape) : shape_(shape) {}
  [[nodiscard]] int largest_group() const override { return shape_.nodes * shape_.members; }
  std::string run(int /*size*/, contract::Select /*select*/, const contract::Part& part) override {
    LevelsWorld world(shape_.nodes, shape_.members);
    if (std::string error = world.meet(); !error.empty()) return "no meeting: " + error;
    return contract::run_on_threads(world.for_host_memory(), part);
  }

 private:
  const Shape shape_;
};

// Halves are not exact if NCCL's sum was rounded.
bool applies(const contract::Test& test, Shape shape) {
  return test.name != "averages of equal values" || std::has_single_bit(static_cast<unsigned>(shape.members));
}

TEST_CASE("two levels of GPUs keep the fabric contract", "[gpu][fabric][levels]") {
  for (const contract::Test& test : contract::fabric_contract()) {
    SECTION(test.name) {
      for (const Shape shape : {Shape{2, 2}, Shape{2, 3}}) {
        if (!applies(test, shape) || (shape.members > 2 && testing::quick())) continue;
        LevelsMedium medium(shape);
        INFO(test.name << ", " << shape.nodes << " nodes of " << shape.members);
        CHECK(test.run(medium, medium.largest_group()) == "");
      }
    }
  }
}

// NCCL inside the nodes, host memory between the nodes of a rack and between racks.
TEST_CASE("three levels of GPUs: sums, and what a node sends", "[gpu][levels]") {
  constexpr std::int64_t kBytes = 4 << 20;
  LevelsWorld world(collective::levels::tree_of_factors({2, 2, 2}));
  REQUIRE(world.meet() == "");
  CHECK(world.fabrics.front()->level_fabrics().size() == 3);
  std::vector<Counter> before(world.sent_between.size());
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = world.sent_between[i].load();
  CHECK(contract::run_on_threads(world.for_host_memory(), [](Fabric& fabric) -> std::string {
          std::vector<float> data(kBytes / sizeof(float), static_cast<float>(fabric.group().index));
          AllreduceCall call = allreduce_over(reinterpret_cast<std::byte*>(data.data()), kBytes);
          if (std::string error = run_call(fabric, call); !error.empty()) return error;
          const bool right = std::all_of(data.begin(), data.end(), [](float x) { return x == 28; });
          return right ? "" : "a wrong sum";
        }) == "");
  // All of the buffer to the other node of its rack, half of it to the other rack.
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(std::abs(world.sent_between[i] - before[i] - kBytes * 3 / 2) <= 64);
  }
}

TEST_CASE("two levels of GPUs: a node sends no more than it must", "[gpu][levels]") {
  for (const Shape shape : {Shape{2, 2}, Shape{2, 3}, Shape{3, 2}}) {
    constexpr std::int64_t kBytes = 18 << 20;  // divisible by 2, 3 and 6
    constexpr std::int64_t kUneven = 64;       // pieces are not divisible by 3
    LevelsWorld world(shape.nodes, shape.members, gpu::kGpuCut);
    REQUIRE(world.meet() == "");
    const std::int64_t sent_before = world.sent_flat;
    std::vector<Counter> before(world.sent_between.size());
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = world.sent_between[i].load();
    const auto ones = [](Fabric& fabric) -> std::string {
      std::vector<float> data(kBytes / sizeof(float), 1.0F);
      AllreduceCall call = allreduce_over(reinterpret_cast<std::byte*>(data.data()), kBytes);
      if (std::string error = run_call(fabric, call); !error.empty()) return error;
      const auto sum = static_cast<float>(fabric.group().size());
      const bool right = std::all_of(data.begin(), data.end(), [sum](float x) { return x == sum; });
      return right ? "" : "a wrong sum";
    };
    INFO(shape.nodes << " nodes of " << shape.members);
    CHECK(contract::run_on_threads(world.for_host_memory(), ones) == "");
    for (std::size_t i = 0; i < before.size(); ++i) {
      const std::int64_t least = 2 * (shape.nodes - 1) * kBytes / shape.nodes;
      CHECK(std::abs(world.sent_between[i] - before[i] - least) <= kUneven);
    }
    CHECK(world.sent_flat == sent_before);
  }
}

// Calls that NCCL or the levels cannot do give the CPU's result.
TEST_CASE("two levels of GPUs: scaled integers go through host memory", "[gpu][levels]") {
  LevelsWorld world(2, 2);
  REQUIRE(world.meet() == "");
  CHECK(contract::run_on_threads(world.for_host_memory(), [](Fabric& fabric) -> std::string {
          for (const bool before : {true, false}) {
            std::vector<std::int32_t> data(5000, 7);
            AllreduceCall call =
                allreduce_over(reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(std::int32_t));
            call.dtype = DType::kInt32;
            (before ? call.prescale : call.scale) = Scale{3.0, 1};
            if (std::string error = run_call(fabric, call); !error.empty()) return error;
            if (data.front() != 84 || data.back() != 84) return "a wrong sum";
          }
          return {};
        }) == "");
}

// Returns the first words of the names of the fabric for dense calls and of its levels.
std::vector<std::string> names_of(Fabric& fabric) {
  const auto first_word = [](const Fabric& of) {
    return std::string(of.name().substr(0, of.name().find(' ')));
  };
  std::vector<std::string> names{first_word(fabric)};
  for (const Fabric* level : fabric.level_fabrics()) names.push_back(first_word(*level));
  return names;
}

TEST_CASE("techniques see the levels of GPUs, and dense calls go over NCCL", "[gpu][levels]") {
  using enum gpu::GpuFabricWish;
  using Names = std::vector<std::string>;
  for (const auto& [wish, with_nccl, names] : {std::tuple{kAuto, true, Names{"nccl", "nccl", "staged"}},
                                               {kNccl, true, {"nccl", "nccl", "staged"}},
                                               {kAuto, false, {"staged", "staged", "staged"}},
                                               {kStaged, true, {"staged", "staged", "staged"}}}) {
    LevelsWorld world(2, 2, LevelsWorld::kCut, wish, with_nccl);
    CHECK(gpu::gpu_level_sizes(*world.members.front().cpu, wish) == std::vector{2, 2});
    CHECK_FALSE(static_cast<gpu::GpuFabric&>(*world.fabrics.front()).knows_levels());
    REQUIRE(world.meet() == "");
    for (const auto& fabric : world.fabrics) {
      CHECK(names_of(*fabric) == names);
      CHECK(collective::level_sizes(*fabric) == std::vector{2, 2});
    }
  }
}

TEST_CASE("ranks on as many nodes have no levels of GPUs", "[gpu][levels]") {
  LevelsWorld world(2, 1, LevelsWorld::kCut, gpu::GpuFabricWish::kAuto);
  REQUIRE(world.meet() == "");
  CHECK(names_of(*world.fabrics.front()) == std::vector<std::string>{"nccl", "nccl"});
  CHECK(collective::level_sizes(*world.fabrics.front()) == std::vector{1, 2});
}

TEST_CASE("giving up frees a stream that waits for a peer inside the node, too", "[gpu][levels]") {
  LevelsWorld world(2, 2, LevelsWorld::kCut, gpu::GpuFabricWish::kAuto);
  REQUIRE(world.meet() == "");
  doubles::FakeGpu& gpu = world.gpu(0);
  const GpuStream stream = gpu.make_stream(0).value();
  const GpuMemory memory = gpu.allocate(0, 400).value();
  AllreduceCall call = allreduce_over(memory.get(), 400);
  call.stream = stream;
  REQUIRE((*world.fabrics.front()->level_fabrics().front()->start(call))->wait().ok());  // enqueued
  const Status cause = Status::aborted("rank 13 was killed");
  device_calls(*world.fabrics.front()).give_up(cause);
  CHECK(gpu.drain(0, stream).ok());
  CHECK(world.fabrics.front()->poisoned());
  CHECK(device_calls(*world.fabrics.front()).health() == cause);
}

}  // namespace
}  // namespace roundelay::gpu_test
