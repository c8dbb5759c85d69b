// Sessions whose ranks have a fake GPU each, and an operation on tensors there.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/leak.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/session_trip.h"
#include "tests/cpp/doubles/fake_gpu.h"
#include "tests/cpp/doubles/fake_nccl.h"

namespace roundelay::contract {

// One rank's GPU, NCCL and streams.
struct Device {
  explicit Device(int rank, bool alone = true)
      : gpu({.seed = static_cast<unsigned>(rank + 1),
             .identity = "fake GPU " + (alone ? std::to_string(rank) + "." : std::string())}),
        nccl(gpu),
        producer(gpu.make_stream(0).value()),
        consumer(gpu.make_stream(0).value()) {}
  ~Device() {
    gpu.free_stream(0, producer);
    gpu.free_stream(0, consumer);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  doubles::FakeGpu gpu;
  doubles::FakeNccl nccl;
  GpuStream producer, consumer;  // the user's streams
};

class GpuWorld {
 public:
  // `fabric` is a value of ROUNDELAY_GPU_FABRIC. `with_library`: there is NCCL, or for fabric mpi the MPI.
  // Ranks are distributed round-robin over the nodes. If nodes have 2 or more ranks, the fabric has two
  // levels.
  GpuWorld(int size, const std::string& fabric, bool one_gpu_each = true, bool with_library = true,
           Config config = {}, int nodes = 1)
      : levels(nodes, size / nodes, 0), device_hub(std::make_shared<collective::InprocHub>(size)) {
    for (int rank = 0; rank < size; ++rank) devices.push_back(std::make_unique<Device>(rank, one_gpu_each));
    config.gpu_fabric = fabric;
    sessions = std::make_unique<SessionWorld>(size, config, [&, nodes](runtime::SessionParts& parts) {
      const int rank = parts.rank_info.rank;
      Device& device = *devices[static_cast<std::size_t>(rank)];
      parts.gpu = {.runtime = &device.gpu,
                   .kernels = &device.gpu,
                   .nccl = with_library ? &device.nccl : nullptr,
                   .why_no_nccl = with_library ? "" : "none"};
      parts.config.node_id = "node " + std::to_string(rank % nodes);
      parts.gpu.pointers = gpu::pointers_of(device.gpu);
      if (fabric == "mpi" && with_library) parts.device_medium = medium_of(parts);
      if (levels.stages() > 1) parts.fabrics.all.front() = collective::make_levels_fabric(levels.of(rank));
    });
  }
  // Returns a rank's medium for the world's memory on GPUs. The hub takes it, as it is the host's in
  // disguise.
  [[nodiscard]] std::shared_ptr<collective::DeviceMedium> medium_of(
      const runtime::SessionParts& parts) const {
    collective::DeviceMedium medium{.state = std::make_shared<collective::FabricState>(), .name = "mpi"};
    medium.state->group = parts.fabrics.all.front()->group();
    medium.state->transport = device_hub->transport(parts.rank_info.rank);
    return std::make_shared<collective::DeviceMedium>(std::move(medium));
  }
  using User = std::function<std::string(runtime::Session&, Device&, int rank)>;
  void run(const User& user) {
    sessions->run([&](runtime::Session& session, int rank) {
      return user(session, *devices[static_cast<std::size_t>(rank)], rank);
    });
  }
  void shutdown() { sessions->shutdown(); }

  const InprocLevels levels;                                // the world's
  const std::shared_ptr<collective::InprocHub> device_hub;  // for fabric mpi
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<SessionWorld> sessions;
};

// The producer's stream writes the inputs, late; the consumer's stream reads the results. The host waits for
// neither before the end.
class GpuTrip final : private submit::Results {
 public:
  GpuTrip(Device& device, std::vector<Tensor> tensors, ProcessSetId process_set = 0)
      : outputs(tensors.size()), device_(device), inputs_(std::move(tensors)), process_set_(process_set) {}
  GpuTrip(Device& device, Tensor tensor, ProcessSetId process_set = 0)
      : GpuTrip(device, std::vector<Tensor>{std::move(tensor)}, process_set) {}
  GpuTrip(const GpuTrip&) = delete;
  GpuTrip& operator=(const GpuTrip&) = delete;

  Status start(runtime::Session& session, wire::Request request, std::vector<std::int64_t> splits = {}) {
    submit::Arguments arguments;
    const bool in_place =
        request.operation == Operation::kAllreduce || request.operation == Operation::kBroadcast;
    results_.resize(inputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& input = inputs_[i];
      const GpuMemory given = produce(input.data);
      given_.push_back(given);
      if (in_place) {
        outputs[i] = {input.dtype, input.shape, std::vector<std::byte>(input.data.size())};
        results_[i] = given;
      }
      arguments.parts.push_back({input.dtype, given.get(), in_place ? given.get() : nullptr,
                                 input.data.size() / size_of(input.dtype)});
      if (i > 0) request.others.push_back({input.dtype, input.shape});
    }
    request.dtype = inputs_.front().dtype;
    request.shape = inputs_.front().shape;
    request.device = DeviceType::kGpu;
    arguments.gpu = 0;
    arguments.inputs_ready = device_.gpu.mark(0, device_.producer).value();
    arguments.request = std::move(request);
    arguments.splits = std::move(splits);
    arguments.results = this;
    const auto handle = session.submit(std::move(arguments), {process_set_});
    if (!handle.ok()) return refused(handle.status());
    handle_ = *handle;
    return {};
  }
  // Waits until the collective is enqueued.
  Status wait(runtime::Session& session) {
    Status status = *session.wait(handle_, Deadline::never());
    if (status.code() == StatusCode::kAborted) give_up();
    return status;
  }
  // Copies the results into `outputs`. Call it after wait().
  Status fetch() {
    if (!there_) return Status::internal("nobody said where the results are");
    ROUNDELAY_RETURN_IF_ERROR(there_->hold_back(device_.consumer));
    std::vector<GpuMemory> copies;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const std::size_t bytes = outputs[i].data.size();
      copies.push_back(device_.gpu.allocate_pinned(std::max<std::size_t>(1, bytes)).value());
      if (bytes == 0) continue;
      ROUNDELAY_RETURN_IF_ERROR(
          device_.gpu.copy(0, copies[i].get(), results_[i].get(), bytes, device_.consumer));
    }
    ROUNDELAY_RETURN_IF_ERROR(device_.gpu.drain(0, device_.consumer));
    for (std::size_t i = 0; i < copies.size(); ++i) {
      std::memcpy(outputs[i].data.data(), copies[i].get(), outputs[i].data.size());
    }
    return {};
  }
  Status run(runtime::Session& session, wire::Request request, std::vector<std::int64_t> splits = {}) {
    ROUNDELAY_RETURN_IF_ERROR(start(session, std::move(request), std::move(splits)));
    ROUNDELAY_RETURN_IF_ERROR(wait(session));
    return fetch();
  }

  std::vector<Tensor> outputs;
  std::vector<std::int64_t> received_splits;

 private:
  // Waits for the producer, which alone uses the memory of a refused operation. Returns `why`.
  Status refused(Status why) {
    const Status written = device_.gpu.drain(0, device_.producer);
    return written.ok() ? why : written;
  }
  // Leaks the memory, which the device may still use after a fault.
  void give_up() {
    leak(std::move(given_));
    leak(std::move(results_));
    leak(std::move(pinned_));
  }
  GpuMemory produce(const std::vector<std::byte>& data) {
    const std::size_t bytes = std::max<std::size_t>(1, data.size());
    GpuMemory pinned = device_.gpu.allocate_pinned(bytes).value();
    GpuMemory memory = device_.gpu.allocate(0, bytes).value();
    if (data.empty()) return memory;
    std::memcpy(pinned.get(), data.data(), data.size());
    static_cast<void>(device_.gpu.copy(0, memory.get(), pinned.get(), data.size(), device_.producer));
    pinned_.push_back(std::move(pinned));
    return memory;
  }
  // Returns memory to which the user's stream still writes, as if it had been freed and allocated again.
  Result<Memory> allocate(std::size_t part, const std::vector<std::int64_t>& shape) override {
    std::size_t bytes = size_of(inputs_[part].dtype);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    outputs[part] = {inputs_[part].dtype, shape, std::vector<std::byte>(bytes)};
    results_[part] = device_.gpu.allocate(0, std::max<std::size_t>(1, bytes)).value();
    ROUNDELAY_RETURN_IF_ERROR(device_.gpu.zero(0, results_[part].get(), bytes, device_.consumer));
    return Memory{.data = results_[part].get(), .free = device_.gpu.mark(0, device_.consumer).value()};
  }
  void set_received_splits(std::vector<std::int64_t> rows) override { received_splits = std::move(rows); }
  void set_done(GpuEventPtr event) override { there_ = std::move(event); }

  Device& device_;
  std::vector<Tensor> inputs_;
  const ProcessSetId process_set_;
  std::vector<GpuMemory> given_, results_, pinned_;
  GpuEventPtr there_;
  complete::Handle handle_ = 0;
};

// Returns the error or the difference, "" if there is none.
inline std::string expect(const GpuTrip& trip, const Status& status, const std::vector<Tensor>& expected) {
  if (!status.ok()) return status.message();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (trip.outputs[i] != expected[i]) return "tensor " + std::to_string(i) + ": wrong shape or values";
  }
  return {};
}

}  // namespace roundelay::contract
