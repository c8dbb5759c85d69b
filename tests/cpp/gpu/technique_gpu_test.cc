// Techniques on a GPU: the CPU's bits, in the order of the lane's stream, and a host that never waits.
#include <array>
#include <cstring>
#include <optional>

#include "compress/gpu_arithmetic.h"
#include "kernels/chunks.h"
#include "tests/cpp/gpu/gpu_trip.h"
#include "tests/cpp/techniques.h"
#include "tests/cpp/unit/node_members.h"

namespace roundelay::contract {
namespace {

using compress::TechniquePtr;
using Floats = std::vector<float>;

constexpr std::uint64_t kKey = 9;
constexpr std::size_t kCount = 1501;
constexpr std::size_t kBytes = kCount * sizeof(float);
constexpr std::array kParameters = {compress::Slice{0, 100}, compress::Slice{112, 800},
                                    compress::Slice{912, 589}};

// Padding is zero, as in a pool.
Floats gradients(int rank, int step) {
  Floats values(kCount);
  for (const compress::Slice& slice : kParameters) {
    for (std::size_t i = slice.first; i < slice.first + slice.count; ++i)
      values[i] = static_cast<float>(
          static_cast<int>((i * 7 + static_cast<std::size_t>(step * 13 + rank)) % 61) - 30);
  }
  return values;
}

// A bucket on a GPU, which the producer's stream fills and the consumer's stream reads.
class GpuBucket final : private submit::Results {
 public:
  GpuBucket(runtime::Session& session, Device& device, RegionPtr region, const TechniquePtr& technique)
      : device_(device),
        region_(std::move(region)),
        technique_(technique),
        state_bytes_(technique->state_bytes(kCount, DType::kFloat32,
                                            session.level_sizes(0, DeviceType::kGpu).value())),
        state_(device.gpu.allocate(0, state_bytes_ + 1).value()) {
    static_cast<void>(device.gpu.zero(0, state_.get(), state_bytes_, device.producer));
  }
  Status start(runtime::Session& session, const Floats& values, bool flush) {
    GpuMemory pinned = device_.gpu.allocate_pinned(kBytes).value();
    std::memcpy(pinned.get(), values.data(), kBytes);
    std::byte* const data = region_->own.data();
    if (done_) ROUNDELAY_RETURN_IF_ERROR(done_->hold_back(device_.producer));
    ROUNDELAY_RETURN_IF_ERROR(device_.gpu.copy(0, data, pinned.get(), kBytes, device_.producer));
    pinned_.push_back(std::move(pinned));
    auto taken = std::make_shared<compress::BucketTechnique>();
    taken->technique = technique_;
    taken->flush = flush;
    taken->state = {state_.get(), state_bytes_};
    taken->run = run_;
    taken->parameters.assign(kParameters.begin(), kParameters.end());
    taken->outcome = &outcome_;
    flush_ = flush;
    submit::Arguments arguments;
    arguments.request = request_of(Operation::kAllreduce, "bucket");
    arguments.request.shape = {static_cast<std::int64_t>(kCount)};
    arguments.request.device = DeviceType::kGpu;
    arguments.request.region = {kKey, 0};
    arguments.request.technique = technique_->text() + (flush ? std::string(wire::kFlush) : "");
    arguments.parts = {{DType::kFloat32, data, data, kCount, region_}};
    arguments.results = this;
    arguments.gpu = 0;
    arguments.inputs_ready = device_.gpu.mark(0, device_.producer).value();
    arguments.technique = std::move(taken);
    const auto submitted = session.submit(std::move(arguments), {});
    if (submitted.ok()) handle_ = *submitted;
    return submitted.status();
  }
  // Waits until the work is enqueued, and enqueues a copy of the results for later.
  Status wait(runtime::Session& session) {
    ROUNDELAY_RETURN_IF_ERROR(*session.wait(handle_, Deadline::never()));
    if (outcome_.applied) run_ = flush_ ? 0 : run_ + 1;
    ROUNDELAY_RETURN_IF_ERROR(done_->hold_back(device_.consumer));
    results_.push_back(device_.gpu.allocate_pinned(kBytes).value());
    ROUNDELAY_RETURN_IF_ERROR(
        device_.gpu.copy(0, results_.back().get(), region_->own.data(), kBytes, device_.consumer));
    // The producer overwrites the bucket after that.
    const Result<GpuEventPtr> read = device_.gpu.mark(0, device_.consumer);
    return read.ok() ? (*read)->hold_back(device_.producer) : read.status();
  }
  // Returns whether the technique has carried out the last operation.
  [[nodiscard]] bool applied() const { return outcome_.applied; }
  // Returns the results of all steps. Waits for the device.
  Result<std::vector<Floats>> read() {
    ROUNDELAY_RETURN_IF_ERROR(device_.gpu.drain(0, device_.consumer));
    std::vector<Floats> all;
    for (const GpuMemory& memory : results_) {
      const auto* const begin = reinterpret_cast<const float*>(memory.get());
      all.emplace_back(begin, begin + kCount);
    }
    return all;
  }

 private:
  Result<Memory> allocate(std::size_t, const std::vector<std::int64_t>&) override {
    return Status::internal("it is in place");
  }
  void set_received_splits(std::vector<std::int64_t>) override {}
  void set_done(GpuEventPtr event) override { done_ = std::move(event); }

  Device& device_;
  const RegionPtr region_;
  const TechniquePtr technique_;
  const std::size_t state_bytes_;
  const GpuMemory state_;
  std::vector<GpuMemory> pinned_, results_;
  GpuEventPtr done_;
  complete::Handle handle_ = 0;
  std::uint64_t run_ = 0;
  bool flush_ = false;  // the last operation
  compress::TechniqueOutcome outcome_;
};

bool flushes(int step) { return step % 5 == 3; }

// Lets the ranks choose their fabric.
std::string meet(runtime::Session& session, Device& device) {
  const Tensor tensor = vector_of<float>({1.0F});
  GpuTrip trip(device, tensor);
  const Status status = trip.run(session, request_of(Operation::kAllreduce, "meeting"));
  return status.ok() ? std::string() : status.message();
}

// Returns the results of the same steps on CPUs.
std::vector<Floats> on_cpus(const compress::Technique& technique, compress::TechniqueMembers&& group,
                            int steps) {
  const int size = static_cast<int>(group.members.size());
  group.set_up(technique, {}, kCount);
  for (auto& member : group.members) member->bucket.parameters = kParameters;
  std::vector<Floats> all;
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < size; ++rank) {
      const Floats values = gradients(rank, step);
      std::memcpy(group.members[static_cast<std::size_t>(rank)]->bytes.data(), values.data(), kBytes);
    }
    if (flushes(step)) {
      group.run_dense(&technique);
    } else {
      group.run(technique);
    }
    const float* const begin = group.members.front()->elements<float>();
    all.emplace_back(begin, begin + kCount);
  }
  return all;
}

TEST_CASE("techniques on a GPU have the CPU's results", "[session][gpu][technique]") {
  constexpr int kSteps = 12;
  // Where nodes have two members, techniques see levels, whatever dense sums go over.
  const auto [fabric, members] = GENERATE(
      table<std::string, int>({{"nccl", 1}, {"staged", 1}, {"two_level", 2}, {"auto", 2}, {"staged", 2}}));
  const compress::Shape shape{2, members};
  const std::string text =
      GENERATE("negate", "cyclic:parts=3", "csc:chunk=100,dense=0+2,keep=0.3",
               "csc:chunk=64,keep=0.2,norms=previous,wire=bf16",
               "csc:chunk=33,keep=0.4,momentum=0.5,nesterov=1,wire=fp16",
               "csc:chunk=33,keep=0.4,masking=0,momentum=0.5", "topk:dense=0+2,density=0.1",
               "topk:density=0.2,select=radix,wire=bf16",
               "topk:density=0.1,index_bits=16,momentum=0.5,nesterov=1,wire=fp16",
               "topk:density=0.1,masking=0,momentum=0.5", "power_sgd:columns=10+40+19,rank=2,seed=3",
               "power_sgd:columns=0+25+31,rank=5,wire=bf16");
  INFO(fabric << ", 2 nodes of " << members << ", " << text);
  const TechniquePtr technique = technique_of(text);
  GpuWorld world(shape.size(), fabric, true, true, {}, shape.nodes);
  std::vector<std::vector<Floats>> results(static_cast<std::size_t>(shape.size()));
  world.run([&](runtime::Session& session, Device& device, int rank) -> std::string {
    auto region = session.make_region(0, kKey, kBytes, 0);
    if (!region.ok()) return region.status().message();
    GpuBucket bucket(session, device, *region, technique);
    if (std::string wrong = meet(session, device); !wrong.empty()) return wrong;
    for (int step = 0; step < kSteps; ++step) {
      Status status = bucket.start(session, gradients(rank, step), flushes(step));
      session.end_linger();
      if (status.ok()) status = bucket.wait(session);
      if (!status.ok()) return status.message();
    }
    auto all = bucket.read();
    if (!all.ok()) return all.status().message();
    results[static_cast<std::size_t>(rank)] = std::move(*all);
    return {};
  });
  world.shutdown();
  // NCCL adds up the factors of all ranks in one order, and the CPU by levels in another.
  const bool has_cpus_order = fabric != "auto" || !text.starts_with("power_sgd");
  const std::vector<Floats> expected =
      has_cpus_order ? on_cpus(*technique, compress::NodeMembers(shape), kSteps) : results.front();
  for (const std::vector<Floats>& of_rank : results) REQUIRE(of_rank == expected);
}

TEST_CASE("before the ranks know the levels of their GPUs, a bucket goes densely",
          "[session][gpu][technique]") {
  const TechniquePtr technique = technique_of("topk:density=0.1");
  GpuWorld world(4, "two_level", true, true, {}, 2);
  world.run([&](runtime::Session& session, Device& device, int rank) -> std::string {
    if (session.level_sizes(0, DeviceType::kGpu).value() != std::vector{2, 2}) return "other levels";
    auto region = session.make_region(0, kKey, kBytes, 0);
    if (!region.ok()) return region.status().message();
    GpuBucket bucket(session, device, *region, technique);
    for (int step = 0; step < 2; ++step) {
      Status status = bucket.start(session, gradients(rank, step), false);
      session.end_linger();
      if (status.ok()) status = bucket.wait(session);
      if (!status.ok()) return status.message();
      if (bucket.applied() != (step > 0)) return "a wrong outcome in step " + std::to_string(step);
    }
    auto all = bucket.read();
    if (!all.ok()) return all.status().message();
    Floats sums(kCount);
    for (int from = 0; from < 4; ++from) {
      const Floats of_rank = gradients(from, 0);
      for (std::size_t i = 0; i < kCount; ++i) sums[i] += of_rank[i];
    }
    return all->front() == sums ? "" : "a wrong sum";
  });
  world.shutdown();
}

TEST_CASE("the host enqueues whole steps of a technique while the device is busy",
          "[session][gpu][technique]") {
  constexpr int kSteps = 8;
  const std::string text = GENERATE("cyclic:parts=3", "csc:chunk=100,keep=0.3", "topk:density=0.3",
                                    "power_sgd:columns=10+40+19,rank=2");
  const TechniquePtr technique = technique_of(text);
  GpuWorld world(1, "nccl");
  std::vector<Floats> results;
  world.run([&](runtime::Session& session, Device& device, int rank) -> std::string {
    auto region = session.make_region(0, kKey, kBytes, 0);
    if (!region.ok()) return region.status().message();
    GpuBucket bucket(session, device, *region, technique);
    std::optional<doubles::FakeGpu::Hold> hold;
    for (int step = 0; step < kSteps; ++step) {
      if (step == 1) hold.emplace(device.gpu);  // the first step has made the communicator
      Status status = bucket.start(session, gradients(rank, step), flushes(step));
      if (status.ok()) status = bucket.wait(session);
      if (!status.ok()) return status.message();
    }
    hold.reset();
    auto all = bucket.read();
    if (!all.ok()) return all.status().message();
    results = std::move(*all);
    return {};
  });
  world.shutdown();
  REQUIRE(results == on_cpus(*technique, compress::TechniqueMembers(1), kSteps));
}

TEST_CASE("the arithmetic of techniques is enqueued in order", "[gpu][technique]") {
  doubles::FakeGpu gpu;
  const GpuStream stream = gpu.make_stream(0).value();
  compress::GpuArithmetic math(gpu, gpu, 0, stream);
  constexpr compress::Chunking kOf{kCount, 100};
  constexpr std::size_t kKeep = 4;
  const auto memory = [&](std::size_t bytes) { return gpu.allocate(0, bytes).value(); };
  const GpuMemory values = memory(kBytes), residual = memory(kBytes), message = memory(kBytes);
  const GpuMemory norms = memory(kOf.chunks() * sizeof(float)), chosen = memory(kKeep * 4),
                  back = memory(kBytes);
  const GpuMemory pinned = gpu.allocate_pinned(kBytes).value(),
                  read = gpu.allocate_pinned(2 * kBytes).value();
  Floats host = gradients(0, 0);
  std::memcpy(pinned.get(), host.data(), kBytes);

  // As chunk sparsification does it: the largest chunks of what was kept and what came.
  std::optional<doubles::FakeGpu::Hold> hold(std::in_place, gpu);
  const std::span indices(reinterpret_cast<std::uint32_t*>(chosen.get()), kKeep);
  const std::span of_chunks(reinterpret_cast<float*>(norms.get()), kOf.chunks());
  REQUIRE(gpu.copy(0, values.get(), pinned.get(), kBytes, stream).ok());
  REQUIRE(math.clear(residual.get(), kBytes).ok());
  REQUIRE(math.clear(back.get(), kBytes).ok());
  REQUIRE(math.keep(residual.get(), values.get(), kCount, DType::kFloat32).ok());
  REQUIRE(math.norms(of_chunks.data(), residual.get(), kOf, DType::kFloat32).ok());
  REQUIRE(math.select(indices, of_chunks).ok());
  REQUIRE(math.gather(message.get(), residual.get(), kOf, indices, DType::kFloat32).ok());
  REQUIRE(math.scale(message.get(), kKeep * 100, DType::kFloat32, {2.0, 1}).ok());
  REQUIRE(math.scatter(back.get(), DType::kFloat32, message.get(), DType::kFloat32, kOf, indices).ok());
  REQUIRE(gpu.copy(0, read.get(), back.get(), kBytes, stream).ok());
  REQUIRE(gpu.copy(0, read.get() + kBytes, residual.get(), kBytes, stream).ok());
  hold.reset();
  REQUIRE(gpu.drain(0, stream).ok());

  Floats all_norms(kOf.chunks());
  for (std::size_t i = 0; i < kOf.chunks(); ++i)
    all_norms[i] = kernels::norm(host.data() + i * 100, kOf.size(i), DType::kFloat32);
  std::array<std::uint32_t, kKeep> expected{};
  kernels::select_largest(expected.data(), kKeep, all_norms.data(), all_norms.size());
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool sent = std::find(expected.begin(), expected.end(), i / 100) != expected.end();
    REQUIRE(reinterpret_cast<float*>(read.get())[i] == (sent ? 2 * host[i] : 0.0F));
    REQUIRE(reinterpret_cast<float*>(read.get())[kCount + i] == (sent ? 0.0F : host[i]));
  }
  gpu.free_stream(0, stream);
}

}  // namespace
}  // namespace roundelay::contract
