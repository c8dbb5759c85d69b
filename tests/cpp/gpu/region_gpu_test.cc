// Regions on a GPU: memory of one rank whose buckets are reduced in place.
#include <algorithm>
#include <array>

#include "tests/cpp/gpu/gpu_trip.h"

namespace roundelay::contract {
namespace {

constexpr std::uint64_t kKey = 9;
constexpr std::size_t kCount = 64;  // floats per bucket
constexpr std::size_t kBytes = kCount * sizeof(float);

// One bucket of a region, which the producer's stream fills.
struct Bucket final : submit::Results {
  Bucket(Device& of, RegionPtr in, std::size_t number)
      : device(of), region(std::move(in)), offset(number * kBytes) {}

  Status start(runtime::Session& session, float value) {
    pinned = device.gpu.allocate_pinned(kBytes).value();
    const std::vector<float> values(kCount, value);
    std::memcpy(pinned.get(), values.data(), kBytes);
    std::byte* const data = region->own.data() + offset;
    ROUNDELAY_RETURN_IF_ERROR(device.gpu.copy(0, data, pinned.get(), kBytes, device.producer));
    submit::Arguments arguments;
    arguments.request = request_of(Operation::kAllreduce, "bucket" + std::to_string(offset));
    arguments.request.shape = {static_cast<std::int64_t>(kCount)};
    arguments.request.device = DeviceType::kGpu;
    arguments.request.region = {kKey, offset};
    arguments.parts = {{DType::kFloat32, data, data, kCount, region}};
    arguments.results = this;
    arguments.gpu = 0;
    arguments.inputs_ready = device.gpu.mark(0, device.producer).value();
    const auto submitted = session.submit(std::move(arguments), {});
    if (submitted.ok()) handle = *submitted;
    return submitted.status();
  }
  // Returns the error, "" if there is none.
  std::string expect(runtime::Session& session, float sum) {
    Status status = *session.wait(handle, Deadline::never());
    if (status.ok()) status = done->hold_back(device.consumer);
    if (status.ok())
      status = device.gpu.copy(0, pinned.get(), region->own.data() + offset, kBytes, device.consumer);
    if (status.ok()) status = device.gpu.drain(0, device.consumer);
    if (!status.ok()) return status.message();
    std::array<float, kCount> values{};
    std::memcpy(values.data(), pinned.get(), kBytes);
    const bool right = std::all_of(values.begin(), values.end(), [&](float value) { return value == sum; });
    return right ? "" : "the bucket at " + std::to_string(offset) + " has a wrong sum";
  }
  Result<Memory> allocate(std::size_t, const std::vector<std::int64_t>&) override {
    return Status::internal("it is in place");
  }
  void set_received_splits(std::vector<std::int64_t>) override {}
  void set_done(GpuEventPtr event) override { done = std::move(event); }

  Device& device;
  const RegionPtr region;
  const std::size_t offset;
  GpuMemory pinned;
  GpuEventPtr done;
  complete::Handle handle = 0;
};

TEST_CASE("buckets of a region on a GPU are reduced where they lie", "[session][gpu]") {
  const std::string fabric = GENERATE("nccl", "staged");
  INFO(fabric);
  GpuWorld world(2, fabric);
  world.run([](runtime::Session& session, Device& device, int rank) -> std::string {
    const auto region = session.make_region(0, kKey, 2 * kBytes, 0);
    if (!region.ok()) return region.status().message();
    Bucket first(device, *region, 0);
    Bucket second(device, *region, 1);
    for (int round = 1; round < 5; ++round) {
      const auto mine = static_cast<float>(round * (rank + 1));
      for (Bucket* bucket : {&first, &second}) {
        if (const Status started = bucket->start(session, mine); !started.ok()) return started.message();
      }
      session.end_linger();
      for (Bucket* bucket : {&first, &second}) {
        if (auto wrong = bucket->expect(session, static_cast<float>(3 * round)); !wrong.empty()) return wrong;
      }
    }
    return session.stats().at("fused_tensors") == 0 ? "" : "a bucket was packed";
  });
  world.shutdown();
}

TEST_CASE("a region that cannot be had on a GPU says where and why", "[session][gpu]") {
  GpuWorld world(1, "staged");
  world.run([](runtime::Session& session, Device& device, int) -> std::string {
    device.gpu.limit_memory(kBytes);
    const Status full = session.make_region(0, kKey, 2 * kBytes, 0).status();
    const std::string wanted = "no memory for a gradient pool of 512 bytes on GPU 0: out of memory";
    if (full.message().find(wanted) != 0) return "said: " + full.message();
    const Status other = session.make_region(0, kKey, kBytes, 1).status();
    return other.code() == StatusCode::kInvalidArgument ? "" : "had a region on a GPU that is not its own";
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
