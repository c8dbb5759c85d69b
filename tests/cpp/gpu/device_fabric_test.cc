// The fabric contract on device memory that never comes to the host, and what is this fabric's own: bits,
// order, questions to the driver.
#include <numeric>

#include "tests/cpp/catch.h"
#include "tests/cpp/gpu/device_world.h"

namespace roundelay::gpu_test {
namespace {

using collective::AllreduceCall;
using collective::Fabric;
using collective::Select;
using contract::allreduce_over;
using contract::random_elements;
using contract::run_call;

class DeviceMedium final : public contract::Medium {
 public:
  [[nodiscard]] int largest_group() const override { return 4; }
  std::string run(int size, contract::Select select, const contract::Part& part) override {
    DeviceWorld world(size, std::move(select));
    return contract::run_on_threads(world.for_host_memory(), part);
  }
};

TEST_CASE("device keeps the fabric contract", "[gpu][fabric]") {
  DeviceMedium medium;
  for (const contract::Test& test : contract::fabric_contract()) {
    SECTION(test.name) {
      for (int size = 1; size <= 3; ++size) {
        INFO(test.name << ", " << size << " members");
        CHECK(test.run(medium, size) == "");
      }
    }
  }
}

TEST_CASE("device carries out every algorithm", "[gpu][fabric]") {
  DeviceMedium medium;
  for (const contract::Test& test : contract::algorithm_contract()) {
    INFO(test.name);
    CHECK(test.run(medium, testing::quick() ? 3 : medium.largest_group()) == "");
  }
}

// Returns the difference from the host's result by the same algorithm, "" if there is none.
std::string same_bits(Fabric& device, Fabric& host, const Select& select, AllreduceCall call) {
  const auto self = static_cast<unsigned>(device.group().index);
  std::vector<std::byte> mine =
      random_elements(call.buffer.bytes / size_of(call.dtype), call.dtype, self + 1);
  std::vector<std::byte> other = mine;
  call.buffer.base = mine.data();
  const std::string what(select(call, device.group().size()).name);
  if (std::string error = run_call(device, call); !error.empty()) return what + ": " + error;
  call.buffer.base = other.data();
  if (std::string error = run_call(host, call); !error.empty()) return what + ": " + error;
  return mine == other ? ""
                       : what + ": " + std::to_string(call.buffer.bytes) + " bytes of " +
                             std::string(name_of(call.dtype)) + " differ from the host's";
}

TEST_CASE("device allreduces have the host's bits", "[gpu]") {
  using enum ReduceOp;
  constexpr int kSize = 3;
  const Select select = Select().on_device();
  DeviceWorld world(kSize, select);
  const auto hub = std::make_shared<collective::InprocHub>(kSize);
  std::vector<std::unique_ptr<Fabric>> hosts;
  for (auto& member : world.members) {
    hosts.push_back(collective::make_inproc_fabric(hub, member->fabric->group(), select));
  }
  CHECK(contract::run_on_threads(world.for_host_memory(), [&](Fabric& device) -> std::string {
          Fabric& host = *hosts[static_cast<std::size_t>(device.group().index)];
          for (int type = 0; type < kDTypeCount; ++type) {
            for (const std::size_t bytes :
                 {std::size_t{0}, std::size_t{8}, std::size_t{4104}, std::size_t{600'000}}) {
              for (const ReduceOp op : {kSum, kMin, kMax, kProduct}) {
                for (const Scale scale : {Scale{}, Scale{0.3, 1}, Scale{1.0, 3}}) {
                  if (bytes > 4104 && (op != kSum || scale.identity())) continue;
                  AllreduceCall call = allreduce_over(nullptr, bytes);
                  call.dtype = static_cast<DType>(type);
                  call.reduce_op = op;
                  call.prescale = call.scale = scale;
                  if (std::string bad = same_bits(device, host, select, call); !bad.empty()) return bad;
                }
              }
            }
          }
          return {};
        }) == "");
}

TEST_CASE("device: small allreduces take recursive doubling, large ones halving and doubling", "[gpu]") {
  const Select select = Select().on_device();
  const auto named = [&](std::size_t bytes) {
    return std::string(select(allreduce_over(nullptr, bytes), 4).name);
  };
  CHECK(named(4) == "recursive_doubling");
  CHECK(named(256 << 10) == "recursive_doubling");
  CHECK(named((256 << 10) + 4) == "halving_doubling");
  CHECK(std::string(contract::always("ring").on_device()(allreduce_over(nullptr, 4), 4).name) == "ring");
}

// Runs this on each member with a stream and memory of its own device.
using OnMemory =
    std::function<std::string(DeviceMember& member, Fabric& fabric, std::byte* memory, GpuStream stream)>;
std::string on_memory(DeviceWorld& world, std::size_t bytes, const OnMemory& part) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (auto& member : world.members) fabrics.push_back(std::move(member->fabric));
  return contract::run_on_threads(fabrics, [&](Fabric& fabric) -> std::string {
    DeviceMember& member = *world.members[static_cast<std::size_t>(fabric.group().index)];
    const GpuStream stream = *member.gpu.make_stream(0);
    const GpuMemory memory = *member.gpu.allocate(0, bytes);
    std::string error = part(member, fabric, memory.get(), stream);
    return member.gpu.drain(0, stream).ok() ? error : "the device failed";
  });
}

// Many calls in one stream before the host looks at a result: they reuse scratch memory again and again.
TEST_CASE("device calls follow each other without waiting for the device", "[gpu]") {
  constexpr std::size_t kCalls = 60, kCount = 700;
  DeviceWorld world(2);
  CHECK(on_memory(
            world, kCalls * kCount * sizeof(float),
            [&](DeviceMember& member, Fabric& fabric, std::byte* memory, GpuStream stream) -> std::string {
              auto* const values = reinterpret_cast<float*>(memory);
              std::iota(values, values + kCalls * kCount, static_cast<float>(fabric.group().index));
              for (std::size_t i = 0; i < kCalls; ++i) {
                AllreduceCall call = allreduce_over(memory, kCount * sizeof(float));
                call.buffer.offset = i * kCount * sizeof(float);
                call.stream = stream;
                if (std::string error = run_call(fabric, call); !error.empty()) return error;
              }
              if (!member.gpu.drain(0, stream).ok()) return "the device failed";
              for (std::size_t i = 0; i < kCalls * kCount; ++i) {
                if (values[i] != 2 * static_cast<float>(i) + 1)
                  return "element " + std::to_string(i) + " is wrong";
              }
              return {};
            }) == "");
  CHECK(world.members.front()->counters->gpu_sums == kCalls);
  CHECK(world.members.front()->counters->gpu_sum_bytes == kCalls * kCount * sizeof(float));
}

TEST_CASE("device: after the first allreduce no question reaches the driver", "[gpu][pointers]") {
  constexpr std::size_t kBytes = 1 << 20;
  constexpr int kCalls = 50;
  DeviceWorld world(3);
  CHECK(on_memory(
            world, kBytes,
            [&](DeviceMember& member, Fabric& fabric, std::byte* memory, GpuStream stream) -> std::string {
              int warm = 0;
              for (int i = 0; i < kCalls; ++i) {
                const std::size_t offset = static_cast<std::size_t>(i) * 64;  // inside the allocation
                AllreduceCall call = allreduce_over(memory, i % 2 == 0 ? 1024 : kBytes - offset);
                call.buffer.offset = offset;
                call.stream = stream;
                if (std::string error = run_call(fabric, call); !error.empty()) return error;
                if (!member.gpu.drain(0, stream).ok()) return "the device failed";
                if (i < 2) warm = member.gpu.questions();  // both sizes have their scratch memory
              }
              if (warm == 0) return "nobody asked";
              if (member.gpu.questions() != warm)
                return std::to_string(member.gpu.questions() - warm) + " questions in " +
                       std::to_string(kCalls - 2) + " calls";
              return member.cache->counts().hits >= kCalls - 2 ? "" : "the cache did not answer";
            }) == "");
}

TEST_CASE("device refuses memory that is not the device's, and goes on", "[gpu]") {
  DeviceWorld world(1);
  DeviceMember& member = *world.members.front();
  const GpuStream stream = *member.gpu.make_stream(0);
  std::vector<float> host(16, 1.0F);
  AllreduceCall call = allreduce_over(reinterpret_cast<std::byte*>(host.data()), 64);
  CHECK(member.fabric->start(call).status().message() == "allreduce: the memory is not a GPU's");
  call.stream = stream;
  CHECK(member.fabric->start(call).status().message() ==
        "allreduce: the memory is the host's, and not that of GPU 0");
  CHECK_FALSE(member.fabric->poisoned());
  const GpuMemory memory = *member.gpu.allocate(0, 64);
  call.buffer.base = memory.get();
  CHECK(run_call(*member.fabric, call) == "");
  CHECK(member.gpu.drain(0, stream).ok());
}

// Two members on one thread, which start the same allreduce of 64 floats.
struct Pair {
  Pair() {
    for (auto& member : world.members) {
      streams.push_back(*member->gpu.make_stream(0));
      memory.push_back(*member->gpu.allocate(0, 256));
      auto* const values = reinterpret_cast<float*>(memory.back().get());
      std::fill(values, values + 64, 1.0F);
    }
  }
  std::unique_ptr<collective::PendingCall> start(std::size_t i, Deadline deadline = Deadline::never()) {
    AllreduceCall call = allreduce_over(memory[i].get(), 256);
    call.stream = streams[i];
    call.deadline = deadline;
    return std::move(world.members[i]->fabric->start(call)).value();
  }

  std::vector<GpuMemory> memory;  // goes after the world, whose devices may still work on it
  DeviceWorld world{2};
  std::vector<GpuStream> streams;
};

TEST_CASE("device: nothing leaves before the work that makes it", "[gpu]") {
  Pair pair;
  doubles::FakeGpu& busy = pair.world.members[0]->gpu;
  std::vector<std::unique_ptr<collective::PendingCall>> calls;
  {
    const doubles::FakeGpu::Hold hold(busy);
    REQUIRE(busy.enqueue(0, pair.streams[0],
                         [&] {
                           auto* const values = reinterpret_cast<float*>(pair.memory[0].get());
                           std::fill(values, values + 64, 41.0F);
                         })
                .ok());
    for (std::size_t i = 0; i < 2; ++i) calls.push_back(pair.start(i));
    // The other member's part is ready, and it waits for the busy one.
    while (calls[1]->waiting_for() != 0) {
      for (auto& call : calls) CHECK_FALSE(call->test().value());
    }
    for (int round = 0; round < 1000; ++round) {
      for (auto& call : calls) CHECK_FALSE(call->test().value());
    }
    CHECK(calls[0]->waiting_for() == -1);  // its own device, and no peer
  }
  for (bool done = false; !done;) {
    done = true;
    for (auto& call : calls) done = call->test().value() && done;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(pair.world.members[i]->gpu.drain(0, pair.streams[i]).ok());
    CHECK(*reinterpret_cast<const float*>(pair.memory[i].get()) == 42.0F);
  }
}

TEST_CASE("device: a late peer and a device that fails end the call", "[gpu]") {
  Pair pair;
  SECTION("the peer does not come") {
    // Long enough for the device's thread to do its part, also on a busy machine.
    auto call = pair.start(0, Deadline::after(std::chrono::milliseconds(1500)));
    const Status error = call->wait();
    CHECK(error.message().find("waiting for rank 11") != std::string::npos);
  }
  SECTION("the device fails") {
    auto call = pair.start(0);
    pair.world.members[0]->gpu.fail(Status::aborted("the device is gone"));
    auto other = pair.start(1);
    Status error;
    while (error.ok()) {
      static_cast<void>(other->test());
      error = call->test().status();
    }
    CHECK(error.message() == "the device is gone");
  }
  CHECK(pair.world.members[0]->fabric->poisoned());
  CHECK_FALSE(device_calls(*pair.world.members[0]->fabric).health().ok());
}

}  // namespace
}  // namespace roundelay::gpu_test
