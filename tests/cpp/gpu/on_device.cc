#include "tests/cpp/gpu/on_device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "base/leak.h"
#include "collective/check.h"
#include "collective/present.h"

namespace roundelay::gpu_test {
namespace {

using collective::AllgatherCall;
using collective::AllreduceCall;
using collective::AlltoallCall;
using collective::BarrierCall;
using collective::BroadcastCall;
using collective::Call;
using collective::Fabric;
using collective::PendingCall;
using collective::ReducescatterCall;

constexpr std::byte kGarbage{0xAB};  // the content of the fake device's new memory
constexpr std::size_t kGuard = 16;

std::size_t sum(const std::vector<std::size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

// What a call gives and gets.
struct Memory {
  ConstByteSpan given;
  ByteSpan result;
};

Memory memory_of(const AllreduceCall& call, std::size_t /*self*/) {
  return {{}, {call.buffer.data(), call.buffer.bytes}};
}
Memory memory_of(const BroadcastCall& call, std::size_t /*self*/) { return {{}, call.buffer}; }
Memory memory_of(const BarrierCall& /*call*/, std::size_t /*self*/) { return {}; }
Memory memory_of(const AllgatherCall& call, std::size_t self) {
  return {{call.input, call.receive_bytes[self]}, call.output};
}
Memory memory_of(const AlltoallCall& call, std::size_t /*self*/) {
  return {{call.input, sum(call.send_bytes)}, call.output};
}
Memory memory_of(const ReducescatterCall& call, std::size_t /*self*/) {
  return {{call.input, sum(call.shard_bytes)}, call.output};
}

Memory memory_of_any(const Call& call, int self) {
  return std::visit([self](const auto& one) { return memory_of(one, static_cast<std::size_t>(self)); }, call);
}

void work_on(AllreduceCall& call, const Memory& memory) {
  call.buffer = {memory.result.data(), 0, memory.result.size(), nullptr};
}
void work_on(BroadcastCall& call, const Memory& memory) { call.buffer = memory.result; }
void work_on(BarrierCall& /*call*/, const Memory& /*memory*/) {}
template <class Kind>
void work_on(Kind& call, const Memory& memory) {
  call.input = memory.given.data();
  call.output = memory.result;
  if constexpr (requires { call.region; }) call.region = nullptr;
}

// Host bytes copied to the device, at the same address modulo 16, between guards.
class Mirror {
 public:
  Mirror(doubles::FakeGpu& gpu, ConstByteSpan host) : host_(host) {
    if (host.empty()) return;
    const std::size_t shift = reinterpret_cast<std::uintptr_t>(host.data()) % kGuard;
    auto memory = gpu.allocate(0, kGuard + shift + host.size() + kGuard);
    if (!memory.ok()) return;  // the call reports it, because its buffer has no memory
    memory_ = std::move(*memory);
    data_ = memory_.get() + kGuard + shift;
    std::memcpy(data_, host.data(), host.size());
  }

  // Returns the device address of a host byte.
  [[nodiscard]] std::byte* at(const std::byte* host) const {
    return data_ == nullptr ? nullptr : data_ + (host - host_.data());
  }
  [[nodiscard]] bool guards_hold() const {
    const auto garbage = [](std::byte b) { return b == kGarbage; };
    const std::byte* const end = at(host_.data() + host_.size());
    return data_ == nullptr ||
           (std::all_of(memory_.get(), data_, garbage) && std::all_of(end, end + kGuard, garbage));
  }
  void abandon() { leak(std::move(memory_)); }

 private:
  ConstByteSpan host_;
  GpuMemory memory_;
  std::byte* data_ = nullptr;
};

// The inputs and outputs of a call. They share a mirror if one contains the other.
class Mirrors {
 public:
  Mirrors(doubles::FakeGpu& gpu, const Call& call, int self)
      : result_(memory_of_any(call, self).result),
        given_(memory_of_any(call, self).given),
        together_(overlap()),
        first_(gpu, together_ ? both() : ConstByteSpan(result_)),
        second_(gpu, together_ ? ConstByteSpan() : given_) {}

  [[nodiscard]] Call on_device(Call call, GpuStream stream) const {
    Memory memory;
    if (!result_.empty()) memory.result = {first_.at(result_.data()), result_.size()};
    if (!given_.empty()) memory.given = {(together_ ? first_ : second_).at(given_.data()), given_.size()};
    collective::options_of(call).stream = stream;
    std::visit([&memory](auto& one) { work_on(one, memory); }, call);
    return call;
  }
  // Returns false if bytes outside the buffers were changed.
  [[nodiscard]] bool bring_back() const {
    if (!result_.empty()) std::memcpy(result_.data(), first_.at(result_.data()), result_.size());
    return first_.guards_hold() && second_.guards_hold();
  }
  // Leaks the memory, which the device may still use.
  void abandon() {
    first_.abandon();
    second_.abandon();
  }

 private:
  [[nodiscard]] bool overlap() const {
    if (result_.empty() || given_.empty()) return false;
    return given_.data() < result_.data() + result_.size() && result_.data() < given_.data() + given_.size();
  }
  [[nodiscard]] ConstByteSpan both() const {
    const std::byte* const begin = std::min<const std::byte*>(result_.data(), given_.data());
    return {begin,
            std::max<const std::byte*>(result_.data() + result_.size(), given_.data() + given_.size())};
  }

  const ByteSpan result_;
  const ConstByteSpan given_;
  const bool together_;
  Mirror first_, second_;
};

class PendingOnDevice final : public PendingCall {
 public:
  PendingOnDevice(doubles::FakeGpu& gpu, GpuStream stream, Mirrors mirrors)
      : gpu_(gpu), stream_(stream), mirrors_(std::move(mirrors)) {}
  ~PendingOnDevice() override {
    inner_.reset();
    if (!over_) mirrors_.abandon();
  }

  Status start(Fabric& fabric, const Call& call) {
    auto started = fabric.start(mirrors_.on_device(call, stream_));
    if (started.ok()) inner_ = std::move(*started);
    return started.status();
  }

  // A thread that only tests leaves the core to the streams' threads.
  Result<bool> test() override {
    Result<bool> over = advance();
    if (over.ok() && !*over) std::this_thread::yield();
    return over;
  }
  [[nodiscard]] int waiting_for() const override { return inner_->waiting_for(); }
  [[nodiscard]] bool crowded() const override { return true; }
  Nap idle(Backoff& backoff) override { return behind_ ? backoff.next() : inner_->idle(backoff); }

 private:
  Result<bool> advance() {
    if (over_) return true;
    if (!behind_) {
      const Result<bool> enqueued = inner_->test();
      if (!enqueued.ok() || !*enqueued) return enqueued;
      auto behind = gpu_.mark(0, stream_);
      if (!behind.ok()) return behind.status();
      behind_ = std::move(*behind);
    }
    const Result<bool> reached = behind_->reached();
    if (!reached.ok() || !*reached) return reached;
    over_ = true;
    if (!mirrors_.bring_back()) return Status::internal("bytes beside a buffer on the device were touched");
    return true;
  }

  doubles::FakeGpu& gpu_;
  const GpuStream stream_;
  Mirrors mirrors_;
  std::unique_ptr<PendingCall> inner_;
  GpuEventPtr behind_;
  bool over_ = false;
};

class OnDevice final : public Fabric {
 public:
  OnDevice(std::unique_ptr<Fabric> fabric, doubles::FakeGpu& gpu, GpuStream stream)
      : Fabric({.waker = fabric->capabilities().waker}),
        fabric_(std::move(fabric)),
        gpu_(gpu),
        stream_(stream) {}
  ~OnDevice() override {
    fabric_.reset();
    gpu_.free_stream(0, stream_);
  }

  [[nodiscard]] std::string_view name() const override { return fabric_->name(); }
  [[nodiscard]] const Group& group() const override { return fabric_->group(); }
  [[nodiscard]] bool any_thread() const override { return fabric_->any_thread(); }
  [[nodiscard]] bool poisoned() const override { return fabric_->poisoned(); }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }

  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    const bool here = !is_absent(collective::options_of(call), group().index);
    if (!here || !check_call(call, group(), capabilities()).ok()) {  // there is nothing to copy
      Call as_it_is = call;
      collective::options_of(as_it_is).stream = stream_;
      return fabric_->start(as_it_is);
    }
    auto pending = std::make_unique<PendingOnDevice>(gpu_, stream_, Mirrors(gpu_, call, group().index));
    ROUNDELAY_RETURN_IF_ERROR(pending->start(*fabric_, call));
    return std::unique_ptr<PendingCall>(std::move(pending));
  }

 private:
  std::unique_ptr<Fabric> fabric_;
  doubles::FakeGpu& gpu_;
  const GpuStream stream_;
};

}  // namespace

std::unique_ptr<Fabric> on_device(std::unique_ptr<Fabric> fabric, doubles::FakeGpu& gpu) {
  auto stream = gpu.make_stream(0);
  return std::make_unique<OnDevice>(std::move(fabric), gpu, stream.ok() ? *stream : nullptr);
}

}  // namespace roundelay::gpu_test
