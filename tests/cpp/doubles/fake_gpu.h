// A GPU without a GPU: device memory is host memory, and each stream has a thread that does its work late and
// out of step with the host and the others, so that a wait for an event which is missing gives wrong results.
//
// What would be a mistake on a real device is found: work on memory that was freed ends the process, copies
// of host memory that is not pinned (for which CUDA would make the host wait) and streams of another device
// are errors, fresh memory is full of garbage.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/gpu_runtime.h"
#include "kernels/gpu.h"
#include "tests/cpp/doubles/fake_gpu_memory.h"
#include "tests/cpp/doubles/fake_gpu_streams.h"

namespace roundelay::doubles {

// Thread-safe. Outlives its users, but not the events and the memory that it gave.
class FakeGpu final : public GpuRuntime, public kernels::GpuKernels {
 public:
  struct Options {
    int devices = 1;
    unsigned seed = 1;  // of the delays
    Duration longest_delay = std::chrono::microseconds(200);
    std::string identity = "fake GPU ";  // the device's number is put behind it
  };
  FakeGpu() : FakeGpu(Options{}) {}
  explicit FakeGpu(Options options);
  ~FakeGpu() override;  // what is enqueued is dropped

  [[nodiscard]] Result<std::string> description() override;
  [[nodiscard]] Result<int> device_count() override;
  [[nodiscard]] Result<std::string> identity(int device) override;
  [[nodiscard]] Result<GpuStream> make_stream(int device) override;
  void free_stream(int device, GpuStream stream) override;
  [[nodiscard]] Result<GpuEventPtr> mark(int device, GpuStream stream) override;
  [[nodiscard]] Result<GpuTimestampPtr> mark_time(int device, GpuStream stream) override;
  [[nodiscard]] Result<GpuMemory> allocate(int device, std::size_t bytes) override;
  [[nodiscard]] Result<GpuMemory> allocate_pinned(std::size_t bytes) override;
  [[nodiscard]] Status copy(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                            GpuStream stream) override;
  [[nodiscard]] Status zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) override;
  // kAborted after a minute.
  [[nodiscard]] Status drain(int device, GpuStream stream) override;

  // The reference: the functions of kernels.h, in the stream's turn.
  [[nodiscard]] Status copy_batch(int device, std::span<const kernels::GpuCopy> items, Scale scale,
                                  GpuStream stream) override;
  [[nodiscard]] Status reduce_parts(int device, std::byte* to, std::span<const std::byte* const> parts,
                                    std::size_t count, DType dtype, ReduceOp op, Scale prescale, Scale scale,
                                    GpuStream stream) override;
  [[nodiscard]] Status norms(int device, double* result, const std::byte* from, std::size_t count,
                             std::size_t chunk, DType dtype, GpuStream stream) override;

  // Any work, when it is its turn. It may block, where `give_up` (called from another thread when the device
  // fails or goes) ends it.
  using Work = FakeStream::Work;
  [[nodiscard]] Status enqueue(int device, GpuStream stream, Work work, Work give_up = {});
  // Other memory that counts as the device's while the result is kept: a tensor's, say.
  [[nodiscard]] std::shared_ptr<void> adopt(ByteSpan memory) { return memory_->adopt(memory); }

  // How often a time was asked for.
  [[nodiscard]] int timestamps() const { return timestamps_; }

  // Faults on order. The devices fail: all later calls and queries of events say this, no work is done.
  void fail(const Status& cause) { streams_->fail(cause); }
  // How much there may be in all: SIZE_MAX is no limit.
  void limit_memory(std::size_t bytes) { memory_->limit(FakeMemory::Kind::kDevice, bytes); }
  [[nodiscard]] std::size_t memory_in_use() { return memory_->in_use(FakeMemory::Kind::kDevice); }
  void limit_pinned(std::size_t bytes) { memory_->limit(FakeMemory::Kind::kPinned, bytes); }

  // While there is one, no stream (or not this one) begins any work: what a busy device looks like.
  class Hold {
   public:
    explicit Hold(FakeGpu& gpu) : all_(gpu.streams_) { all_->hold_all(); }
    Hold(FakeGpu& gpu, int device, GpuStream stream);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    std::shared_ptr<FakeStreams> all_;  // or
    std::shared_ptr<FakeStream> one_;
  };

 private:
  [[nodiscard]] Result<GpuMemory> allocate_as(FakeMemory::Kind kind, std::size_t bytes);
  // Of what a kernel or copy is to use: device or pinned memory.
  [[nodiscard]] Status check_memory(ConstByteSpan bytes);

  const Options options_;
  const std::shared_ptr<FakeMemory> memory_ = std::make_shared<FakeMemory>();
  const std::shared_ptr<FakeStreams> streams_;
  std::atomic<int> timestamps_{0};
};

}  // namespace roundelay::doubles
