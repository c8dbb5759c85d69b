// A device whose streams ignore events. Tests must notice it.
#pragma once

#include <memory>
#include <utility>

#include "base/gpu_runtime.h"

namespace roundelay::fake_gpu {

// Wraps `device`, which must outlive it.
class Forgetful final : public GpuRuntime {
 public:
  explicit Forgetful(GpuRuntime& device) : device_(device) {}

  Result<std::string> description() override { return device_.description(); }
  Result<int> device_count() override { return device_.device_count(); }
  Result<std::string> identity(int device) override { return device_.identity(device); }
  Result<Allocation> ask(const void* address) override { return device_.ask(address); }
  bool host_reaches_memory() override { return device_.host_reaches_memory(); }
  bool tell(std::shared_ptr<MemoryListener> listener) override { return device_.tell(std::move(listener)); }
  Result<GpuStream> make_stream(int device) override { return device_.make_stream(device); }
  void free_stream(int device, GpuStream stream) override { device_.free_stream(device, stream); }
  Result<bool> captures(int device, GpuStream stream) override { return device_.captures(device, stream); }
  Result<GpuEventPtr> mark(int device, GpuStream stream) override {
    Result<GpuEventPtr> made = device_.mark(device, stream);
    if (!made.ok()) return made;
    return GpuEventPtr(std::make_shared<const Event>(std::move(made).value()));
  }
  Result<GpuTimestampPtr> mark_time(int device, GpuStream stream) override {
    return device_.mark_time(device, stream);
  }
  Result<GpuMemory> allocate(int device, std::size_t bytes) override {
    return device_.allocate(device, bytes);
  }
  Result<GpuMemory> allocate_pinned(std::size_t bytes) override { return device_.allocate_pinned(bytes); }
  Status copy(int device, std::byte* to, const std::byte* from, std::size_t bytes,
              GpuStream stream) override {
    return device_.copy(device, to, from, bytes, stream);
  }
  Status zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) override {
    return device_.zero(device, to, bytes, stream);
  }
  Status drain(int device, GpuStream stream) override { return device_.drain(device, stream); }

 private:
  class Event final : public GpuEvent {
   public:
    explicit Event(GpuEventPtr real) : real_(std::move(real)) {}
    Result<bool> reached() const override { return real_->reached(); }
    Status hold_back(GpuStream /*stream*/) const override { return {}; }

   private:
    const GpuEventPtr real_;
  };
  GpuRuntime& device_;
};

}  // namespace roundelay::fake_gpu
