// The fabric contract on device memory, staged through host memory, and the CPU fabric's bits.
#include <numeric>

#include "collective/staged/plan.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/gpu/staged_world.h"

namespace roundelay::gpu_test {
namespace {

using collective::AllreduceCall;
using collective::Fabric;
using collective::staged::StagedPlan;
using collective::staged::StagedStep;
using contract::allreduce_over;
using contract::random_elements;
using contract::run_call;

class StagedMedium final : public contract::Medium {
 public:
  [[nodiscard]] int largest_group() const override { return 3; }
  std::string run(int size, contract::Select /*select*/, const contract::Part& part) override {
    StagedWorld world(size);
    return contract::run_on_threads(world.for_host_memory(), part);
  }
};

TEST_CASE("staged keeps the fabric contract", "[gpu][fabric]") {
  StagedMedium medium;
  for (const contract::Test& test : contract::fabric_contract()) {
    SECTION(test.name) {
      for (int size = 1; size <= medium.largest_group(); ++size) {
        INFO(test.name << ", " << size << " members");
        CHECK(test.run(medium, size) == "");
      }
    }
  }
}

// A call and its memory, twice.
struct Twins {
  explicit Twins(std::vector<std::byte> memory) : mine(std::move(memory)), other(mine) {}

  // Runs it with both fabrics. Returns the difference, "" if there is none.
  std::string compare(Fabric& staged, Fabric& plain, AllreduceCall call, const std::string& what) {
    call.buffer.base = mine.data();
    if (std::string error = run_call(staged, call); !error.empty()) return what + ": " + error;
    call.buffer.base = other.data();
    if (std::string error = run_call(plain, call); !error.empty()) return what + ": " + error;
    return mine == other ? "" : what + ": not the bits of the CPU's fabric";
  }

  std::vector<std::byte> mine, other;
};

std::string same_reductions(Fabric& staged, Fabric& plain, DType dtype, std::size_t count) {
  using enum ReduceOp;
  const auto self = static_cast<unsigned>(staged.group().index);
  for (const ReduceOp op : {kSum, kMin, kMax, kProduct, kAdasum}) {
    if (op == kAdasum && !is_floating(dtype)) continue;
    for (const Scale scale : {Scale{}, Scale{0.3, 1}, Scale{1.0, 3}}) {
      AllreduceCall call = allreduce_over(nullptr, count * size_of(dtype));
      call.dtype = dtype;
      call.reduce_op = op;
      call.prescale = op == kAdasum ? Scale{} : scale;
      call.scale = scale;
      Twins twins(random_elements(count, dtype, self + 1));
      const std::string what = std::to_string(count) + " of " + std::string(name_of(dtype));
      if (std::string bad = twins.compare(staged, plain, call, what); !bad.empty()) return bad;
    }
  }
  return {};
}

TEST_CASE("staged allreduces have the CPU fabric's bits, around the cuts too", "[gpu]") {
  StagedWorld world(3);
  const auto fabrics = world.for_host_memory();
  CHECK(contract::run_on_threads(fabrics, [&](Fabric& staged) {
          Fabric& plain = *world.members[static_cast<std::size_t>(staged.group().index)].plain;
          for (int type = 0; type < kDTypeCount; ++type) {
            const auto dtype = static_cast<DType>(type);
            const std::size_t piece = kPiece / size_of(dtype);
            for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{77}, piece - 1, piece,
                                            piece + 1, 4 * piece + 3}) {
              if (std::string bad = same_reductions(staged, plain, dtype, count); !bad.empty()) return bad;
            }
          }
          return std::string();
        }) == "");
}

// Many calls in one stream before the host looks at a result: they reuse pinned memory again and again.
TEST_CASE("staged calls follow each other without waiting for the device", "[gpu]") {
  constexpr std::size_t kCalls = 60, kCount = 700;
  for (unsigned seed = 0; seed < 5; ++seed) {
    StagedWorld world(2, seed, 1024);
    std::vector<std::unique_ptr<Fabric>> fabrics;
    for (StagedMember& member : world.members) fabrics.push_back(std::move(member.staged));
    CHECK(contract::run_on_threads(fabrics, [&](Fabric& staged) -> std::string {
            const int self = staged.group().index;
            doubles::FakeGpu& gpu = *world.members[static_cast<std::size_t>(self)].gpu;
            const GpuStream stream = *gpu.make_stream(0);
            const GpuMemory memory = *gpu.allocate(0, kCalls * kCount * sizeof(float));
            auto* const values = reinterpret_cast<float*>(memory.get());
            std::iota(values, values + kCalls * kCount, static_cast<float>(self));
            for (std::size_t i = 0; i < kCalls; ++i) {
              AllreduceCall call = allreduce_over(memory.get(), kCount * sizeof(float));
              call.buffer.offset = i * kCount * sizeof(float);
              call.stream = stream;
              if (std::string error = run_call(staged, call); !error.empty()) return error;
            }
            if (!gpu.drain(0, stream).ok()) return "the device failed";
            for (std::size_t i = 0; i < kCalls * kCount; ++i) {
              if (values[i] != 2 * static_cast<float>(i) + 1)
                return "element " + std::to_string(i) + " is wrong";
            }
            return {};
          }) == "");
  }
}

TEST_CASE("staged: pieces are all of the bytes, and other calls are whole", "[gpu]") {
  std::vector<std::byte> memory(5000);
  AllreduceCall call = allreduce_over(memory.data(), 0);
  call.dtype = DType::kFloat64;
  for (const std::size_t bytes : {0, 8, 1016, 1024, 1032, 5000}) {
    call.buffer.bytes = bytes;
    const collective::Call whole = call;
    const StagedPlan plan(whole, 0, 1024);
    CHECK(plan.count() == std::max<std::size_t>((bytes + 1023) / 1024, 1));
    std::size_t end = 0;
    for (std::uint64_t i = 0; i < plan.count(); ++i) {
      const StagedStep step = plan[i];
      CHECK((bytes == 0 || step.from == memory.data() + end));
      CHECK(step.to == step.from);
      CHECK(step.pinned == step.given.bytes);
      end += step.result.bytes;
    }
    CHECK(end == bytes);
  }
  call.reduce_op = ReduceOp::kAdasum;
  const collective::Call adasum = call;
  CHECK(StagedPlan(adasum, 0, 1024).count() == 1);
  call.reduce_op = ReduceOp::kSum;
  call.absent = {1};  // member 1 does not know the number of bytes
  const collective::Call skipped = call;
  CHECK(StagedPlan(skipped, 0, 1024).count() == 1);
  CHECK(StagedPlan(skipped, 1, 1024).count() == 1);
  CHECK(StagedPlan(skipped, 1, 1024)[0].pinned == 0);
}

}  // namespace
}  // namespace roundelay::gpu_test
