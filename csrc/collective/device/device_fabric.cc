#include "collective/device/device_fabric.h"

#include <string>
#include <utility>

#include "base/leak.h"
#include "collective/check.h"
#include "collective/device/device_stream.h"
#include "collective/device/device_transport.h"
#include "collective/device/device_work.h"
#include "collective/engine/algorithm_fabric.h"
#include "collective/present.h"
#include "collective/single/gpu_single.h"

namespace roundelay::collective {
namespace {

using device::DeviceStream;
using device::DeviceTransport;
using device::DeviceWork;

using StreamPtr = std::shared_ptr<DeviceStream>;

// A call that is over for the host when the caller's stream waits for its last kernel.
class PendingDeviceCall final : public PendingCall {
 public:
  PendingDeviceCall(std::shared_ptr<FabricState> state, std::unique_ptr<PendingCall> program, StreamPtr work,
                    GpuStream callers)
      : state_(std::move(state)), program_(std::move(program)), work_(std::move(work)), callers_(callers) {}

  Result<bool> test() override {
    Result<bool> done = program_->test();
    if (!done.ok() || !*done || led_) return done;
    led_ = true;
    if (Status error = work_->lead(callers_); !error.ok()) {
      state_->fail(error);
      return error;
    }
    return done;
  }
  [[nodiscard]] int waiting_for() const override { return program_->waiting_for(); }
  [[nodiscard]] std::string_view algorithm() const override { return program_->algorithm(); }
  [[nodiscard]] bool crowded() const override { return program_->crowded(); }
  Nap idle(Backoff& backoff) override { return program_->idle(backoff); }

 private:
  const std::shared_ptr<FabricState> state_;
  const std::unique_ptr<PendingCall> program_;
  const StreamPtr work_;
  const GpuStream callers_;
  bool led_ = false;
};

// Calls leave no work on the device that waits for a peer: the host posts a kernel when its parts are there.
class Faults final : public DeviceCalls {
 public:
  Faults(std::shared_ptr<FabricState> state, Fabric& staged) : state_(std::move(state)), staged_(staged) {}
  Status health() override { return state_->poison; }
  void give_up(const Status& cause) override {
    state_->fail(cause);
    staged_.capabilities().device->give_up(cause);
  }

 private:
  const std::shared_ptr<FabricState> state_;
  Fabric& staged_;
};

// Returns where the memory that a call works on begins; null: it has none.
const std::byte* first_byte(const AllreduceCall& call) {
  return call.buffer.bytes > 0 ? call.buffer.data() : nullptr;
}
const std::byte* first_byte(const BroadcastCall& call) {
  return call.buffer.empty() ? nullptr : call.buffer.data();
}
const std::byte* first_byte(const BarrierCall& /*call*/) { return nullptr; }
template <class Kind>
const std::byte* first_byte(const Kind& call) {
  return call.output.empty() ? nullptr : call.output.data();
}

class DeviceFabric final : public Fabric {
 public:
  DeviceFabric(DeviceFabricParts parts, StreamPtr stream, std::unique_ptr<DeviceCalls> faults)
      : Fabric({.within_node = parts.staged.capabilities().within_node,
                .device = faults.get(),
                .make_region = no_gpu_region,
                .counters = parts.counters}),
        parts_(std::move(parts)),
        stream_(std::move(stream)),
        faults_(std::move(faults)),
        programs_(parts_.medium.state, {parts_.medium.name, parts_.medium.any_thread, parts_.medium.select}) {
  }

  [[nodiscard]] std::string_view name() const override { return parts_.medium.name; }
  [[nodiscard]] const Group& group() const override { return parts_.medium.state->group; }
  [[nodiscard]] bool any_thread() const override { return parts_.medium.any_thread; }
  [[nodiscard]] bool poisoned() const override { return programs_.poisoned() || parts_.staged.poisoned(); }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    if (!parts_.medium.state->poison.ok()) return parts_.medium.state->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, group(), capabilities()));
    const auto* const allreduce = std::get_if<AllreduceCall>(&call);
    if (allreduce != nullptr && allreduce->reduce_op == ReduceOp::kAdasum) return parts_.staged.start(call);
    if (is_absent(options_of(call), group().index)) return programs_.start(call);
    ROUNDELAY_RETURN_IF_ERROR(check_memory(call));
    const GpuStream callers = options_of(call).stream;
    if (Status error = stream_->follow(callers); !error.ok()) {
      parts_.medium.state->fail(error);
      return error;
    }
    auto program = programs_.start(call);
    if (!program.ok()) return program.status();
    return std::unique_ptr<PendingCall>(std::make_unique<PendingDeviceCall>(
        parts_.medium.state, std::move(program).value(), stream_, callers));
  }

 private:
  // Kernels and the medium would fail, or end the process, on memory that is not the device's.
  Status check_memory(const Call& call) const {
    const std::string operation(name_of(operation_of(call)));
    if (options_of(call).stream == nullptr) return Status::invalid(operation + ": the memory is not a GPU's");
    const std::byte* const memory = std::visit([](const auto& one) { return first_byte(one); }, call);
    if (memory == nullptr) return {};
    if (!parts_.pointers.hears_all) parts_.pointers.cache->forget_all();
    const Result<MemoryPlace> place = parts_.pointers.cache->locate(memory);
    if (!place.ok()) return place.status();
    if (place->kind == MemoryKind::kDevice && place->device == parts_.device) return {};
    if (place->kind == MemoryKind::kManaged) return {};
    const std::string where =
        place->kind == MemoryKind::kDevice ? "GPU " + std::to_string(place->device) + "'s" : "the host's";
    return Status::invalid(operation + ": the memory is " + where + ", and not that of GPU " +
                           std::to_string(parts_.device));
  }

  const DeviceFabricParts parts_;
  const StreamPtr stream_;
  const std::unique_ptr<DeviceCalls> faults_;
  AlgorithmFabric programs_;
};

// Scratch memory goes back to the device when the kernels on it are done, or never.
ScratchPool::Allocate allocate_on(const StreamPtr& stream) {
  return [stream](std::size_t bytes) -> std::shared_ptr<std::byte> {
    Result<GpuMemory> memory = stream->runtime().allocate(stream->device(), bytes);
    if (!memory.ok()) return nullptr;
    std::byte* const data = memory->get();
    return {data, [stream, own = std::move(memory).value()](std::byte* /*data*/) mutable {
              const Result<GpuEventPtr> end = stream->end_of_work();
              if (!end.ok() || *end != nullptr) leak(std::move(own));
            }};
  };
}

}  // namespace

Result<std::unique_ptr<Fabric>> make_device_fabric(DeviceFabricParts parts) {
  auto stream = DeviceStream::make(parts.runtime, parts.device);
  if (!stream.ok()) return stream.status();
  FabricState& state = *parts.medium.state;
  state.transport = std::make_unique<DeviceTransport>(std::move(state.transport), *stream);
  state.work = std::make_shared<DeviceWork>(*stream, parts.kernels, parts.counters);
  state.scratch.allocate_by(allocate_on(*stream));
  auto faults = std::make_unique<Faults>(parts.medium.state, parts.staged);
  return std::unique_ptr<Fabric>(
      std::make_unique<DeviceFabric>(std::move(parts), std::move(stream).value(), std::move(faults)));
}

}  // namespace roundelay::collective
