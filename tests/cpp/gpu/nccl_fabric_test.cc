// The fabric contract on device memory by NCCL, and the results that must be the CPU's bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "collective/nccl/reduction.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/gpu/nccl_world.h"

namespace roundelay::gpu_test {
namespace {

using collective::AllreduceCall;
using collective::Call;
using collective::Fabric;
using collective::PendingCall;
using contract::allreduce_over;
using contract::patient;
using contract::random_elements;
using contract::run_call;
using enum ReduceOp;

class NcclMedium final : public contract::Medium {
 public:
  [[nodiscard]] int largest_group() const override { return testing::quick() ? 3 : 4; }
  std::string run(int size, contract::Select /*select*/, const contract::Part& part) override {
    NcclWorld world(size);
    return contract::run_on_threads(world.for_host_memory(), part);
  }
};

// Halves are not exact if their sum was rounded.
bool applies(const contract::Test& test, int size) {
  return test.name != "averages of equal values" || std::has_single_bit(static_cast<unsigned>(size));
}

TEST_CASE("nccl keeps the fabric contract", "[gpu][fabric]") {
  NcclMedium medium;
  for (const contract::Test& test : contract::fabric_contract()) {
    SECTION(test.name) {
      for (int size = 1; size <= medium.largest_group(); ++size) {
        if (!applies(test, size)) continue;
        INFO(test.name << ", " << size << " members");
        CHECK(test.run(medium, size) == "");
      }
    }
  }
}

// Returns half an ulp of the type, relative to a value.
double unit(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-53;
    case DType::kFloat32:
      return 0x1p-24;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kBFloat16:
      return 0x1p-8;
    default:
      return 0;
  }
}

// Returns how much the documented arithmetic may differ from the CPU's; 0 if the bits are promised.
double allowed(const AllreduceCall& call, int members) {
  if (call.reduce_op != kSum || call.scale.divisor == 1) return 0;  // the fake adds as the CPU does
  constexpr double kLargestPart = 2000 / 7.0;
  const double factor = call.prescale.factor / static_cast<double>(call.scale.divisor);
  return (members + 3) * unit(call.dtype) * members * kLargestPart * factor;
}

std::string compare_with_cpu(Fabric& fabric, Fabric& plain, AllreduceCall call) {
  const auto self = static_cast<unsigned>(fabric.group().index);
  const std::size_t count = call.buffer.bytes / size_of(call.dtype);
  std::vector<std::byte> mine = random_elements(count, call.dtype, self + 1), other = mine;
  const std::string what = std::to_string(count) + " of " + std::string(name_of(call.dtype)) + " " +
                           std::string(name_of(call.reduce_op));
  call.buffer.base = mine.data();
  if (std::string error = run_call(fabric, call); !error.empty()) return what + ": " + error;
  call.buffer.base = other.data();
  if (std::string error = run_call(plain, call); !error.empty()) return what + ": " + error;
  const double most = allowed(call, fabric.group().size());
  if (most == 0) return mine == other ? "" : what + ": not the bits of the CPU's fabric";
  const auto got = contract::decode(mine.data(), count, call.dtype);
  const auto want = contract::decode(other.data(), count, call.dtype);
  for (std::size_t i = 0; i < count; ++i) {
    if (!(std::fabs(got[i] - want[i]) <= most)) {
      return what + ": " + std::to_string(got[i]) + ", not " + std::to_string(want[i]);
    }
  }
  return {};
}

std::string all_reductions(Fabric& fabric, Fabric& plain) {
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const ReduceOp op : {kSum, kMin, kMax, kProduct}) {
      for (const Scale prescale : {Scale{}, Scale{0.3, 1}}) {
        for (const Scale scale : {Scale{}, Scale{0.7, 1}, Scale{1.0, fabric.group().size()}, Scale{1.0, 7}}) {
          for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{777}}) {
            const auto dtype = static_cast<DType>(type);
            AllreduceCall call = allreduce_over(nullptr, count * size_of(dtype));
            call.dtype = dtype;
            call.reduce_op = op;
            call.prescale = prescale;
            call.scale = scale;
            if (std::string bad = compare_with_cpu(fabric, plain, call); !bad.empty()) return bad;
          }
        }
      }
    }
  }
  return {};
}

TEST_CASE("nccl's reductions are the CPU's, to the bit or within what is documented", "[gpu]") {
  for (int size = 1; size <= 4; ++size) {
    NcclWorld world(size);
    INFO(size << " members");
    CHECK(contract::run_on_threads(world.for_host_memory(), [&](Fabric& fabric) {
            const auto self = static_cast<std::size_t>(fabric.group().index);
            return all_reductions(fabric, *world.staged.members[self].plain);
          }) == "");
  }
}

TEST_CASE("nccl: an average of small integers does not overflow on the way", "[gpu]") {
  NcclWorld world(4);
  CHECK(contract::run_on_threads(world.for_host_memory(), [](Fabric& fabric) -> std::string {
          std::vector<unsigned char> values(5, 200);
          AllreduceCall call = allreduce_over(reinterpret_cast<std::byte*>(values.data()), 5);
          call.dtype = DType::kUInt8;
          call.scale = {1.0, 4};
          if (std::string error = run_call(fabric, call); !error.empty()) return error;
          return values == std::vector<unsigned char>(5, 200) ? "" : "another average";
        }) == "");
}

collective::Reduction reduction(DType dtype, ReduceOp op, Scale prescale = {}, Scale scale = {}) {
  return {.dtype = dtype, .reduce_op = op, .prescale = prescale, .scale = scale};
}

TEST_CASE("nccl: what NCCL cannot reduce as the CPU does goes another way", "[gpu]") {
  using collective::nccl::reduction_of;
  using enum DType;
  CHECK_FALSE(reduction_of(reduction(kFloat32, kAdasum), 2));
  CHECK_FALSE(reduction_of(reduction(kBool, kSum, {}, {1.0, 2}), 2));
  CHECK_FALSE(reduction_of(reduction(kInt32, kSum, {2.0, 1}), 2));
  CHECK_FALSE(reduction_of(reduction(kInt32, kSum, {}, {0.5, 1}), 2));
  CHECK_FALSE(reduction_of(reduction(kInt32, kMax, {}, {1.0, 2}), 2));
  CHECK_FALSE(reduction_of(reduction(kInt32, kSum, {}, {1.0, 2}), 3));  // might exceed the type's range
}

TEST_CASE("nccl: integers are widened where NCCL lacks the type or a sum could overflow", "[gpu]") {
  using collective::nccl::reduction_of;
  using enum DType;
  CHECK(reduction_of(reduction(kInt16, kProduct), 2)->wire == kInt32);
  CHECK(reduction_of(reduction(kInt8, kSum), 2)->wire == kInt8);
  CHECK(reduction_of(reduction(kUInt8, kSum, {}, {1.0, 2}), 2)->wire == kInt32);
  CHECK(reduction_of(reduction(kInt32, kSum, {}, {1.0, 4}), 2)->wire == kInt64);
  CHECK(reduction_of(reduction(kBool, kProduct), 2)->reduction.op == kMin);
  CHECK(reduction_of(reduction(kBool, kSum), 2)->reduction.op == kMax);
}

TEST_CASE("nccl: an average of floats is NCCL's where it rounds as well as a kernel, a factor is a kernel's",
          "[gpu]") {
  using collective::nccl::reduction_of;
  using enum DType;
  const auto average = reduction_of(reduction(kFloat32, kSum, {}, {1.0, 3}), 3);
  CHECK((average->reduction.average && average->after.identity()));
  const auto factors = reduction_of(reduction(kFloat64, kSum, {0.5, 1}, {0.75, 1}), 4);
  CHECK((factors->before == Scale{0.5, 1} && factors->after == Scale{0.75, 1}));
  CHECK_FALSE(factors->reduction.average);
  const auto half = reduction_of(reduction(kFloat16, kSum, {}, {1.0, 4}), 4);
  CHECK((half->reduction.average && half->after.identity()));
  const auto odd = reduction_of(reduction(kBFloat16, kSum, {}, {1.0, 3}), 3);
  CHECK((!odd->reduction.average && odd->after == Scale{1.0, 3}));
  const auto most = reduction_of(reduction(kFloat32, kMax, {0.3, 1}, {1.0, 2}), 2);
  CHECK((most->before == Scale{0.3, 1} && most->after == Scale{1.0, 2} && !most->reduction.average));
}

// One member's buffers in two streams, with one fabric each.
struct TwoStreams {
  static constexpr std::size_t kCalls = 80, kCount = 300;

  explicit TwoStreams(doubles::FakeGpu& of, int self) : gpu(of) {
    for (std::size_t i = 0; i < 2; ++i) {
      streams[i] = *gpu.make_stream(0);
      memory[i] = *gpu.allocate(0, kCalls * kCount * sizeof(float));
      auto* const begin = reinterpret_cast<float*>(memory[i].get());
      std::fill_n(begin, kCalls * kCount, static_cast<float>(self + 1));
    }
  }
  std::string run(Fabric& fabric, std::size_t which, std::size_t number) {
    AllreduceCall call = allreduce_over(memory[which].get(), kCount * sizeof(float));
    call.buffer.offset = number * kCount * sizeof(float);
    call.stream = streams[which];
    return run_call(fabric, call);
  }
  std::string check(float want) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (!gpu.drain(0, streams[i]).ok()) return "a stream did not end";
      const auto* const begin = reinterpret_cast<const float*>(memory[i].get());
      const auto right = std::count(begin, begin + kCalls * kCount, want);
      if (right != static_cast<std::ptrdiff_t>(kCalls * kCount)) return "wrong sums";
    }
    return {};
  }

  doubles::FakeGpu& gpu;
  GpuStream streams[2] = {};
  GpuMemory memory[2];
};

TEST_CASE("nccl: two fabrics work in two streams, call after call", "[gpu]") {
  for (unsigned seed = 0; seed < 4; ++seed) {
    NcclWorld world(3, seed);
    const auto others = world.new_fabrics();
    CHECK(contract::run_on_threads(world.fabrics, [&](Fabric& fabric) {
            const int self = fabric.group().index;
            TwoStreams work(world.gpu(self), self);
            for (std::size_t i = 0; i < TwoStreams::kCalls; ++i) {
              std::string bad = work.run(fabric, 0, i);
              if (bad.empty()) bad = work.run(*others[static_cast<std::size_t>(self)], 1, i);
              if (!bad.empty()) return bad;
            }
            return work.check(6.0F);
          }) == "");
  }
}

// One call of each kind that NCCL does itself.
std::vector<Call> calls_of_all_kinds(std::byte* memory, const std::byte* input) {
  std::vector<Call> calls;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt16}) {
    AllreduceCall call = allreduce_over(memory, 480);
    call.dtype = dtype;
    if (is_floating(dtype)) call.prescale = {0.3, 1};
    calls.emplace_back(call);
  }
  calls.emplace_back(contract::broadcast_over(memory, 77));
  calls.emplace_back(patient<collective::BarrierCall>());
  for (const std::size_t first : {std::size_t{64}, std::size_t{32}}) {
    auto gather = patient<collective::AllgatherCall>();
    gather.input = input;
    gather.output = {memory, first + 64};
    gather.receive_bytes = {first, 64};
    calls.emplace_back(gather);
    auto exchange = patient<collective::AlltoallCall>();
    exchange.input = input;
    exchange.output = {memory, 128};
    exchange.receive_bytes = exchange.send_bytes = {64, 64};
    calls.emplace_back(exchange);
    auto scatter = patient<collective::ReducescatterCall>();
    scatter.input = input;
    scatter.output = {memory, first};
    scatter.shard_bytes = {first, 64};
    calls.emplace_back(scatter);
  }
  return calls;
}

TEST_CASE("nccl: the host never waits for the device", "[gpu]") {
  NcclWorld world(2);
  std::vector<std::unique_ptr<doubles::FakeGpu::Hold>> holds;
  for (int i = 0; i < 2; ++i) holds.push_back(std::make_unique<doubles::FakeGpu::Hold>(world.gpu(i)));
  std::vector<GpuMemory> memory(2), input(2);
  std::vector<GpuStream> streams(2);
  CHECK(contract::run_on_threads(world.fabrics, [&](Fabric& fabric) {
          const auto self = static_cast<std::size_t>(fabric.group().index);
          doubles::FakeGpu& gpu = world.gpu(fabric.group().index);
          memory[self] = *gpu.allocate(0, 4096);
          input[self] = *gpu.allocate(0, 4096);
          streams[self] = *gpu.make_stream(0);
          for (Call& call : calls_of_all_kinds(memory[self].get(), input[self].get())) {
            collective::options_of(call).stream = streams[self];
            if (auto* const scatter = std::get_if<collective::ReducescatterCall>(&call)) {
              scatter->output = {scatter->output.data(), scatter->shard_bytes[self]};
            }
            if (std::string error = run_call(fabric, call); !error.empty()) return error;
          }
          return std::string();
        }) == "");
  holds.clear();
  for (int i = 0; i < 2; ++i) CHECK(world.gpu(i).drain(0, streams[static_cast<std::size_t>(i)]).ok());
}

}  // namespace
}  // namespace roundelay::gpu_test
