// A simulated GPU. Device memory is host memory. Each stream has a thread that does its work late,
// independently of the host and of other streams, so that a missing wait for an event gives wrong results.
//
// It detects errors of a real device. Work on freed memory ends the process. Copies of host memory that is
// not pinned (CUDA would make the host wait) and streams of another device are errors. New memory is filled
// with garbage.
#pragma once

#include <atomic>
#include <climits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/gpu_runtime.h"
#include "kernels/gpu.h"
#include "tests/cpp/doubles/fake_gpu_memory.h"
#include "tests/cpp/doubles/fake_gpu_streams.h"

namespace roundelay::doubles {

// Thread-safe. It must outlive its users, except events and memory.
class FakeGpu final : public GpuRuntime, public kernels::GpuKernels {
 public:
  struct Options {
    int devices = 1;
    unsigned seed = 1;  // for the delays
    Duration longest_delay = std::chrono::microseconds(200);
    std::string identity = "fake GPU ";  // the device's number follows
    int fitting = INT_MAX;               // the kernels are not compiled for devices from this number on
  };
  FakeGpu() : FakeGpu(Options{}) {}
  explicit FakeGpu(Options options);
  ~FakeGpu() override;  // drops work that is enqueued

  [[nodiscard]] Result<std::string> description() override;
  [[nodiscard]] Result<int> device_count() override;
  [[nodiscard]] Result<std::string> identity(int device) override;
  // Blocks count as memory of device 0.
  [[nodiscard]] Result<Allocation> ask(const void* address) override;
  [[nodiscard]] bool host_reaches_memory() override { return true; }
  [[nodiscard]] bool tell(std::shared_ptr<MemoryListener> listener) override;
  [[nodiscard]] Result<GpuStream> make_stream(int device) override;
  void free_stream(int device, GpuStream stream) override;
  [[nodiscard]] Result<bool> captures(int device, GpuStream stream) override;
  [[nodiscard]] Result<GpuEventPtr> mark(int device, GpuStream stream) override;
  [[nodiscard]] Result<GpuTimestampPtr> mark_time(int device, GpuStream stream) override;
  [[nodiscard]] Result<GpuMemory> allocate(int device, std::size_t bytes) override;
  [[nodiscard]] Result<GpuMemory> allocate_pinned(std::size_t bytes) override;
  [[nodiscard]] Status copy(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                            GpuStream stream) override;
  [[nodiscard]] Status zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) override;
  // Returns kAborted after a minute.
  [[nodiscard]] Status drain(int device, GpuStream stream) override;

  [[nodiscard]] std::string compiled_for() const override { return "fake GPUs"; }
  [[nodiscard]] Status fits(int device) const override;
  // Enqueue the functions of kernels.h, which are the reference.
  [[nodiscard]] Status copy_batch(int device, std::span<const kernels::GpuCopy> items, Scale scale,
                                  GpuStream stream) override;
  [[nodiscard]] Status reduce_parts(int device, std::byte* to, std::span<const std::byte* const> parts,
                                    std::size_t count, DType dtype, ReduceOp op, Scale prescale, Scale scale,
                                    GpuStream stream) override;
  [[nodiscard]] Status keep(int device, std::byte* residual, std::byte* values, std::size_t count,
                            DType dtype, GpuStream stream) override;
  [[nodiscard]] Status give_back(int device, std::byte* values, std::byte* residual, std::size_t count,
                                 DType dtype, GpuStream stream) override;
  [[nodiscard]] Status accumulate(int device, float* norms, const kernels::ResidualState& kept,
                                  std::byte* values, kernels::Chunking of, DType dtype,
                                  GpuStream stream) override;
  [[nodiscard]] Status mark_overflow(int device, std::byte* value, DType dtype, const float* norms,
                                     std::size_t count, GpuStream stream) override;
  [[nodiscard]] Status norms(int device, float* norms, const std::byte* from, kernels::Chunking of,
                             DType dtype, GpuStream stream) override;
  [[nodiscard]] Status select(int device, std::uint32_t* indices, std::size_t keep, const float* norms,
                              std::size_t count, GpuStream stream) override;
  [[nodiscard]] Status number(int device, std::uint32_t* indices, std::size_t count,
                              kernels::Progression numbers, GpuStream stream) override;
  [[nodiscard]] Status gather(int device, std::byte* to, std::byte* residual, kernels::Chunking of,
                              std::span<const std::uint32_t> indices, DType dtype, GpuStream stream) override;
  [[nodiscard]] Status scatter(int device, std::byte* to, DType to_type, const std::byte* from,
                               DType from_type, kernels::Chunking of, std::span<const std::uint32_t> indices,
                               GpuStream stream) override;
  [[nodiscard]] Status clear_chunks(int device, std::byte* at, kernels::Chunking of,
                                    std::span<const std::uint32_t> indices, DType dtype,
                                    GpuStream stream) override;
  [[nodiscard]] Status top_k(int device, std::span<const float> values, const kernels::TopKRule& rule,
                             std::span<float> chosen, std::span<std::int64_t> indices, std::byte* scratch,
                             GpuStream stream) override;
  // Not as many bytes as a real device needs. They are overwritten with garbage.
  [[nodiscard]] std::size_t top_k_scratch(std::size_t count) const override;
  [[nodiscard]] Status take_pairs(int device, const kernels::Pairs& pairs, const kernels::ResidualState& kept,
                                  std::span<const std::int64_t> indices, GpuStream stream) override;
  [[nodiscard]] Status add_pairs(int device, std::byte* sums, const kernels::Pairs& pairs, Scale prescale,
                                 GpuStream stream) override;
  [[nodiscard]] Status project(int device, const kernels::LowRankBlock& block, DType dtype,
                               GpuStream stream) override;
  // It overwrites the scratch memory with garbage.
  [[nodiscard]] Status project_back(int device, const kernels::LowRankBlock& block, DType dtype,
                                    std::byte* scratch, GpuStream stream) override;
  [[nodiscard]] std::size_t project_back_scratch(std::size_t rows, std::size_t columns, std::size_t count,
                                                 DType dtype) const override;
  [[nodiscard]] Status expand(int device, const kernels::LowRankBlock& block, double share, DType dtype,
                              GpuStream stream) override;
  [[nodiscard]] Status orthonormalise(int device, const kernels::Vectors& vectors, DType dtype,
                                      GpuStream stream) override;
  [[nodiscard]] Status renew(int device, const kernels::Vectors& to, const kernels::Vectors& from,
                             std::uint64_t seed, DType dtype, GpuStream stream) override;

  // Enqueues any work. It may block if `give_up` ends it: another thread calls that when the device fails or
  // is destroyed.
  using Work = FakeStream::Work;
  [[nodiscard]] Status enqueue(int device, GpuStream stream, Work work, Work give_up = {});
  // Begins or ends the capture of a graph from the stream. What is enqueued meanwhile is not captured.
  void capture(int device, GpuStream stream, bool begins);
  // Makes other memory (a tensor's, for example) count as device memory while the result exists.
  [[nodiscard]] std::shared_ptr<void> adopt(ByteSpan memory) { return memory_->adopt(memory); }

  // Ends the process if some of the device's or pinned memory has been freed. Work calls it when it runs.
  void expect_live(ConstByteSpan memory) { memory_->expect_live(memory); }
  [[nodiscard]] std::shared_ptr<void> hold(ConstByteSpan memory) { return memory_->hold(memory); }

  // Returns how often it was asked where memory lies.
  [[nodiscard]] int questions() const { return questions_; }
  // Returns how many timestamps were recorded.
  [[nodiscard]] int timestamps() const { return timestamps_; }

  // Simulate faults. fail() breaks all devices: all later calls and queries of events return `cause`, no work
  // is done.
  void fail(const Status& cause) { streams_->fail(cause); }
  // Limit all device memory or all pinned memory; SIZE_MAX means no limit.
  void limit_memory(std::size_t bytes) { memory_->limit(FakeMemory::Kind::kDevice, bytes); }
  [[nodiscard]] std::size_t memory_in_use() { return memory_->in_use(FakeMemory::Kind::kDevice); }
  void limit_pinned(std::size_t bytes) { memory_->limit(FakeMemory::Kind::kPinned, bytes); }

  // Simulates a busy device: while a Hold exists, no stream (or not this one) starts any work.
  class Hold {
   public:
    explicit Hold(FakeGpu& gpu) : all_(gpu.streams_) { all_->hold_all(); }
    Hold(FakeGpu& gpu, int device, GpuStream stream);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    std::shared_ptr<FakeStreams> all_;  // null if one_ is set
    std::shared_ptr<FakeStream> one_;
  };

 private:
  [[nodiscard]] Result<GpuMemory> allocate_as(FakeMemory::Kind kind, std::size_t bytes);
  // Returns OK if a kernel or copy may use the memory: it must be device or pinned memory.
  [[nodiscard]] Status check_memory(ConstByteSpan bytes);
  // Enqueues a kernel that uses this memory, all of which must live until it runs.
  [[nodiscard]] Status enqueue_on(int device, GpuStream stream, std::vector<ConstByteSpan> used, Work work);

  const Options options_;
  const std::shared_ptr<FakeMemory> memory_ = std::make_shared<FakeMemory>();
  const std::shared_ptr<FakeStreams> streams_;
  std::atomic<int> timestamps_{0}, questions_{0};
};

}  // namespace roundelay::doubles
