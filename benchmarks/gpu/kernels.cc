// Compares the GPU kernels with a copy on the device. Prints one JSON object.
//
// Every contender reads and writes as many bytes, in total, as the copy that it is compared with, in the same
// run. Selections of the largest magnitudes read their values several times: they are compared with so many
// reads. All are timed as graphs of many launches, so that the host's launch rate does not matter. The
// numbers are medians.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "platform/cuda/runtime.h"

namespace roundelay {
namespace {

constexpr int kDevice = 0;
constexpr int kLaunches = 20;  // per graph
constexpr int kRounds = 30;
constexpr std::size_t kTensors = 64;  // per pack

void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}
void check(cudaError_t error) {
  if (error != cudaSuccess) check(Status::aborted(cudaGetErrorString(error)));
}
template <typename T>
T check(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

// Enqueues work to a stream.
using Work = std::function<Status(GpuStream)>;

struct Contender {
  std::string name;
  Work work;
  int reads = 0;  // of a selection
  cudaGraphExec_t graph = nullptr;
  std::vector<float> microseconds{};

  [[nodiscard]] float median() {
    const auto middle = microseconds.begin() + static_cast<std::ptrdiff_t>(microseconds.size() / 2);
    std::nth_element(microseconds.begin(), middle, microseconds.end());
    return *middle;
  }
};

class Bench {
 public:
  explicit Bench(std::size_t bytes)
      : bytes_(bytes),
        stream_(check(runtime_.make_stream(kDevice))),
        native_(reinterpret_cast<cudaStream_t>(stream_)) {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
    to_ = check(runtime_.allocate(kDevice, 2 * bytes));
    from_ = check(runtime_.allocate(kDevice, 2 * bytes));
    check(runtime_.zero(kDevice, to_.get(), 2 * bytes, stream_));
    check(runtime_.zero(kDevice, from_.get(), 2 * bytes, stream_));
  }

  void add(std::string name, Work work, int reads = 0) {
    contenders_.push_back({std::move(name), std::move(work), reads});
  }
  void add_all();
  void run() {
    for (Contender& one : contenders_) record(one);
    for (int round = 0; round < kRounds; ++round)
      for (Contender& one : contenders_) measure(one);
  }
  void print() {
    const float copy = contenders_.front().median();
    std::printf("    {\"bytes\": %zu, \"copy_us\": %.2f, \"copy_gb_per_s\": %.1f, \"fractions\": {", bytes_,
                static_cast<double>(copy), 2e-3 * static_cast<double>(bytes_) / static_cast<double>(copy));
    for (std::size_t i = 1; i < contenders_.size(); ++i) {
      if (contenders_[i].reads > 0) continue;
      std::printf("%s\n      \"%s\": %.3f", i == 1 ? "" : ",", contenders_[i].name.c_str(),
                  static_cast<double>(copy / contenders_[i].median()));
    }
    std::printf("},\n      \"selections\": {");
    const char* between = "";
    for (Contender& one : contenders_) {
      if (one.reads == 0) continue;
      std::printf("%s\"%s\": {\"us\": %.2f, \"reads\": %d}", between, one.name.c_str(),
                  static_cast<double>(one.median()), one.reads);
      between = ", ";
    }
    std::printf("}}");
  }

 private:
  void add_copy(const std::string& name, DType to, DType from, Scale scale, std::size_t tensors);
  void add_reduction(DType dtype, std::size_t parts);
  void add_chunks(DType dtype);
  void add_selection(const std::string& name, const kernels::TopKRule& rule, int reads);

  void record(Contender& one) {
    check(one.work(stream_));  // loads the kernel, which must not happen while a graph is recorded
    check(cudaStreamSynchronize(native_));
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(native_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kLaunches; ++i) check(one.work(stream_));
    check(cudaStreamEndCapture(native_, &graph));
    check(cudaGraphInstantiate(&one.graph, graph, 0));
    check(cudaGraphLaunch(one.graph, native_));
  }
  void measure(Contender& one) {
    float milliseconds = 0;
    check(cudaEventRecord(begin_, native_));
    check(cudaGraphLaunch(one.graph, native_));
    check(cudaEventRecord(end_, native_));
    check(cudaEventSynchronize(end_));
    check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    one.microseconds.push_back(milliseconds * 1000 / kLaunches);
  }

  std::size_t bytes_;
  platform::cuda::CudaRuntime runtime_;
  kernels::cuda::CudaKernels kernels_;
  GpuStream stream_;
  cudaStream_t native_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  GpuMemory to_, from_;
  std::vector<Contender> contenders_;
};

// Tensors of different sizes, adjacent in both places, at multiples of 64 elements.
void Bench::add_copy(const std::string& name, DType to, DType from, Scale scale, std::size_t tensors) {
  const std::size_t count = 2 * bytes_ / (size_of(to) + size_of(from));
  std::vector<kernels::GpuCopy> items;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= tensors; ++i) {
    const std::size_t end = i == tensors ? count : count * i * i / (tensors * tensors) / 64 * 64;
    items.push_back(
        {to_.get() + begin * size_of(to), from_.get() + begin * size_of(from), end - begin, to, from});
    begin = end;
  }
  add(name,
      [this, items, scale](GpuStream stream) { return kernels_.copy_batch(kDevice, items, scale, stream); });
}

void Bench::add_reduction(DType dtype, std::size_t parts) {
  const std::size_t part = 2 * bytes_ / (parts + 1) / 256 * 256;
  std::vector<const std::byte*> from;
  for (std::size_t p = 0; p < parts; ++p) from.push_back(from_.get() + p * part);
  const auto divisor = static_cast<std::int64_t>(parts);
  add("reduce_" + std::to_string(parts) + "_" + std::string(name_of(dtype)),
      [this, from, part, dtype, divisor](GpuStream stream) {
        return kernels_.reduce_parts(kDevice, to_.get(), from, part / size_of(dtype), dtype, ReduceOp::kSum,
                                     {}, {1.0, divisor}, stream);
      });
}

// Sparse communication with all chunks chosen: its three passes.
void Bench::add_chunks(DType dtype) {
  const std::string name(name_of(dtype));
  const std::size_t size = size_of(dtype), kept = size_of(kernels::residual_type(dtype));
  const auto chunking = [this](std::size_t bytes_of_element) {
    const std::size_t count = 2 * bytes_ / bytes_of_element;
    const std::size_t chunk = std::max<std::size_t>(4096, count / 1024);
    return kernels::Chunking{count / chunk * chunk, chunk};
  };
  std::byte* const lists = to_.get() + bytes_ + bytes_ / 2;  // norms and indices
  const std::span indices(reinterpret_cast<std::uint32_t*>(lists) + 4096, std::size_t{2048});
  check(kernels_.number(kDevice, indices.data(), indices.size(), {}, stream_));
  add("accumulate_" + name, [=, this, of = chunking(2 * (kept + size))](GpuStream stream) {
    return kernels_.accumulate(kDevice, reinterpret_cast<float*>(lists), {to_.get()}, from_.get(), of, dtype,
                               stream);
  });
  add("gather_" + name, [=, this, of = chunking(2 * kept + size)](GpuStream stream) {
    return kernels_.gather(kDevice, from_.get(), to_.get(), of, indices.first(of.chunks()), dtype, stream);
  });
  add("scatter_" + name + "_to_float32", [=, this, of = chunking(sizeof(float) + size)](GpuStream stream) {
    return kernels_.scatter(kDevice, to_.get(), DType::kFloat32, from_.get(), dtype, of,
                            indices.first(of.chunks()), stream);
  });
}

// One value in a hundred. All are zeros, so that no search ends early.
void Bench::add_selection(const std::string& name, const kernels::TopKRule& rule, int reads) {
  const std::span values(reinterpret_cast<const float*>(from_.get()), bytes_ / sizeof(float));
  const std::span chosen(reinterpret_cast<float*>(to_.get()), values.size() / 100);
  const std::span indices(reinterpret_cast<std::int64_t*>(to_.get() + bytes_ / 2), chosen.size());
  add(
      name,
      [=, this](GpuStream stream) {
        return kernels_.top_k(kDevice, values, rule, chosen, indices, to_.get() + bytes_, stream);
      },
      reads);
}

void Bench::add_all() {
  add("copy",
      [this](GpuStream stream) { return runtime_.copy(kDevice, to_.get(), from_.get(), bytes_, stream); });
  add_copy("pack", DType::kFloat32, DType::kFloat32, {}, kTensors);
  add_copy("scale_float32_by_half", DType::kFloat32, DType::kFloat32, {1.0, 2}, kTensors);
  add_copy("scale_float32_by_third", DType::kFloat32, DType::kFloat32, {1.0, 3}, kTensors);
  add_copy("scale_float32_by_0.1", DType::kFloat32, DType::kFloat32, {0.1, 1}, kTensors);
  add_copy("scale_float16", DType::kFloat16, DType::kFloat16, {1.0, 3}, kTensors);
  add_copy("scale_bfloat16", DType::kBFloat16, DType::kBFloat16, {1.0, 3}, kTensors);
  add_copy("cast_float32_to_float16", DType::kFloat16, DType::kFloat32, {}, kTensors);
  add_copy("cast_float32_to_bfloat16", DType::kBFloat16, DType::kFloat32, {}, kTensors);
  add_copy("cast_float16_to_float32", DType::kFloat32, DType::kFloat16, {}, kTensors);
  add_copy("scale_float32_to_float16", DType::kFloat16, DType::kFloat32, {1.0, 2}, kTensors);
  add_copy("widen_int16_to_int32", DType::kInt32, DType::kInt16, {}, kTensors);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    for (const std::size_t parts : {2, 4, 8}) add_reduction(dtype, parts);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const std::size_t count = 2 * bytes_ / size_of(dtype);
    const std::size_t chunk = std::max<std::size_t>(4096, count / 1024);
    add("norms_" + std::string(name_of(dtype)), [this, dtype, count, chunk](GpuStream stream) {
      auto* const result = reinterpret_cast<float*>(to_.get());
      return kernels_.norms(kDevice, result, from_.get(), {count, chunk}, dtype, stream);
    });
    add_chunks(dtype);
  }
  add_selection("mstopk", {kernels::Selection::kMsTopK, 20, 0}, 8);
  add_selection("radix", {kernels::Selection::kRadix}, 10);
}

void run() {
  platform::cuda::CudaRuntime runtime;
  std::printf("{\"runtime\": \"%s\",\n  \"sizes\": [\n", check(runtime.description()).c_str());
  bool first = true;
  for (const std::size_t mebibytes : {1, 4, 25, 100}) {
    Bench bench(mebibytes << 20);
    bench.add_all();
    bench.run();
    if (!first) std::printf(",\n");
    bench.print();
    first = false;
  }
  std::printf("\n  ]}\n");
}

}  // namespace
}  // namespace roundelay

int main() { roundelay::run(); }
