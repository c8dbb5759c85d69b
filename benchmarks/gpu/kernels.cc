// Compares the GPU kernels with a copy on the device. Prints one JSON object.
//
// Every contender moves about as many bytes as the copy that it is compared with, in the same run. What
// counts are the sectors of memory that it touches, and its share is that of the copy's rate. Selections of
// the largest magnitudes are compared with so many reads of their values. All are timed as graphs of many
// launches, so that the host's launch rate does not matter. The numbers are medians.
//
// What is as large as the cache, or larger, takes turns in several places, so that no launch finds there what
// the one before has left. Smaller work is in the cache, as gradients are that backward has just made.
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/gpu/checked.h"
#include "kernels/cuda/kernels.h"
#include "platform/cuda/runtime.h"

namespace roundelay {
namespace {

using benchmarks::check;

constexpr int kDevice = 0;
constexpr int kLaunches = 20;  // per graph
constexpr int kRounds = 30;
constexpr std::size_t kTensors = 64;  // per pack

// The least part of memory that is read or written.
constexpr std::uint64_t kSector = 32;

// Memory of one turn.
struct Place {
  std::byte* to;
  std::byte* from;
};

// Returns the bytes of the sectors that an array at this offset of a place touches.
constexpr std::uint64_t sectors(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t first = offset / kSector, end = (offset + bytes + kSector - 1) / kSector;
  return bytes == 0 ? 0 : (end - first) * kSector;
}

// Enqueues work to a stream.
using Work = std::function<Status(const Place&, GpuStream)>;

enum class Kind { kKernel, kProduct, kSelection };

struct Contender {
  std::string name;
  Work work;
  std::uint64_t bytes = 0;  // of all sectors that it reads and writes
  Kind kind = Kind::kKernel;
  int reads = 0;  // of a selection
  cudaGraphExec_t graph = nullptr;
  std::vector<float> microseconds{};

  [[nodiscard]] float median() {
    const auto middle = microseconds.begin() + static_cast<std::ptrdiff_t>(microseconds.size() / 2);
    std::nth_element(microseconds.begin(), middle, microseconds.end());
    return *middle;
  }
};

int l2_bytes() {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, kDevice));
  return bytes;
}

class Bench {
 public:
  explicit Bench(std::size_t bytes)
      : bytes_(bytes),
        stream_(check(runtime_.make_stream(kDevice))),
        native_(reinterpret_cast<cudaStream_t>(stream_)) {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
    const auto cache = static_cast<std::size_t>(l2_bytes());
    const std::size_t turns = 4 * bytes < cache ? 1 : 2 + cache / bytes;
    for (std::size_t i = 0; i < 2 * turns; ++i)
      memory_.push_back(check(runtime_.allocate(kDevice, 2 * bytes)));
    for (std::size_t i = 0; i < turns; ++i) {
      places_.push_back({memory_[2 * i].get(), memory_[2 * i + 1].get()});
      fill(places_[i].from, 2 * bytes);
      check(runtime_.zero(kDevice, places_[i].to, 2 * bytes, stream_));
    }
    lists_ = check(runtime_.allocate(kDevice, kListBytes));
    const std::size_t values = bytes / sizeof(float);
    scratch_ = check(runtime_.allocate(kDevice, kernels_.top_k_scratch(values)));
    zeros_ = zeroed(bytes);
  }

  void add(std::string name, std::uint64_t bytes, Work work, Kind kind = Kind::kKernel, int reads = 0) {
    contenders_.push_back({std::move(name), std::move(work), bytes, kind, reads});
  }
  void add_all();
  void run() {
    for (Contender& one : contenders_) record(one);
    for (int round = 0; round < kRounds; ++round)
      for (Contender& one : contenders_) measure(one);
  }
  void print() {
    const double copy = microseconds(0), launch = microseconds(1);
    const double rate = static_cast<double>(contenders_.front().bytes) / copy;
    std::printf("    {\"bytes\": %zu, \"turns\": %zu, \"copy_us\": %.2f, \"launch_us\": %.2f,\n", bytes_,
                places_.size(), copy, launch);
    std::printf("     \"copy_gb_per_s\": %.1f, \"fractions\": {", 1e-3 * rate);
    print_shares(Kind::kKernel, rate);
    std::printf("},\n      \"products\": {");
    print_shares(Kind::kProduct, rate);
    std::printf("},\n      \"selections\": {");
    const char* between = "";
    for (std::size_t i = 2; i < contenders_.size(); ++i) {
      const Contender& one = contenders_[i];
      if (one.kind != Kind::kSelection) continue;
      std::printf("%s\"%s\": {\"us\": %.2f, \"reads\": %d}", between, one.name.c_str(), microseconds(i),
                  one.reads);
      between = ", ";
    }
    std::printf("}}");
  }

 private:
  static constexpr std::size_t kChunks = 1024;              // about as many
  static constexpr std::size_t kMostChunks = 2048;          // a norm and an index each
  static constexpr std::size_t kRank = 4, kColumns = 1024;  // of low-rank products
  static constexpr std::size_t kListBytes = kMostChunks * (sizeof(float) + sizeof(std::uint32_t));

  void add_copy(const std::string& name, DType to, DType from, Scale scale, std::size_t tensors);
  void add_reduction(DType dtype, std::size_t parts);
  void add_norms(DType dtype);
  void add_chunks(DType dtype);
  void add_products(DType dtype);
  void add_selection(const std::string& name, const kernels::TopKRule& rule, int reads, bool equal);
  void print_shares(Kind kind, double rate);

  [[nodiscard]] double microseconds(std::size_t i) { return static_cast<double>(contenders_[i].median()); }

  std::byte* zeroed(std::size_t bytes) {
    memory_.push_back(check(runtime_.allocate(kDevice, bytes)));
    check(runtime_.zero(kDevice, memory_.back().get(), bytes, stream_));
    return memory_.back().get();
  }
  // Writes words of two bf16 numbers from a normal distribution. As fp32 they have this distribution, too,
  // and as fp16 they are numbers.
  void fill(std::byte* at, std::size_t bytes) {
    static const std::vector<std::uint32_t> words = [] {
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      std::vector<std::uint32_t> made(1 << 18);
      for (std::uint32_t& word : made) {
        const auto high = std::bit_cast<std::uint32_t>(normal(random)) >> 16U << 16U;
        word = high | std::bit_cast<std::uint32_t>(normal(random)) >> 16U;
      }
      return made;
    }();
    const std::size_t part = words.size() * sizeof words[0];
    for (std::size_t done = 0; done < bytes; done += part)
      check(cudaMemcpy(at + done, words.data(), std::min(part, bytes - done), cudaMemcpyHostToDevice));
  }
  void record(Contender& one) {
    check(
        one.work(places_[0], stream_));  // loads the kernel, which must not happen while a graph is recorded
    check(cudaStreamSynchronize(native_));
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(native_, cudaStreamCaptureModeThreadLocal));
    for (std::size_t i = 0; i < kLaunches; ++i) check(one.work(places_[i % places_.size()], stream_));
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
  std::vector<GpuMemory> memory_;
  std::vector<Place> places_;
  GpuMemory lists_, scratch_;
  std::byte* zeros_ = nullptr;
  std::vector<Contender> contenders_;
};

// Tensors of different sizes, adjacent in both places, at multiples of 64 elements: no sector belongs to two.
void Bench::add_copy(const std::string& name, DType to, DType from, Scale scale, std::size_t tensors) {
  const std::size_t count = 2 * bytes_ / (size_of(to) + size_of(from));
  const auto items = [=](const Place& place) {
    std::vector<kernels::GpuCopy> made;
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= tensors; ++i) {
      const std::size_t end = i == tensors ? count : count * i * i / (tensors * tensors) / 64 * 64;
      made.push_back(
          {place.to + begin * size_of(to), place.from + begin * size_of(from), end - begin, to, from});
      begin = end;
    }
    return made;
  };
  add(name, sectors(0, count * size_of(to)) + sectors(0, count * size_of(from)),
      [this, items, scale](const Place& place, GpuStream stream) {
        return kernels_.copy_batch(kDevice, items(place), scale, stream);
      });
}

// Reads each part once, and writes one.
void Bench::add_reduction(DType dtype, std::size_t parts) {
  const std::size_t part = 2 * bytes_ / (parts + 1) / 256 * 256;
  const auto divisor = static_cast<std::int64_t>(parts);
  add("reduce_" + std::to_string(parts) + "_" + std::string(name_of(dtype)), (parts + 1) * sectors(0, part),
      [this, parts, part, dtype, divisor](const Place& place, GpuStream stream) {
        std::vector<const std::byte*> from;
        for (std::size_t p = 0; p < parts; ++p) from.push_back(place.from + p * part);
        return kernels_.reduce_parts(kDevice, place.to, from, part / size_of(dtype), dtype, ReduceOp::kSum,
                                     {}, {1.0, divisor}, stream);
      });
}

// Reads all values.
void Bench::add_norms(DType dtype) {
  const std::size_t count = 2 * bytes_ / size_of(dtype), chunk = std::max<std::size_t>(4096, count / kChunks);
  add("norms_" + std::string(name_of(dtype)), sectors(0, count * size_of(dtype)),
      [=, this](const Place& place, GpuStream stream) {
        return kernels_.norms(kDevice, reinterpret_cast<float*>(lists_.get()), place.from, {count, chunk},
                              dtype, stream);
      });
}

// Sparse communication: the accumulation of all chunks; then every other chunk is gathered and scattered.
void Bench::add_chunks(DType dtype) {
  const std::string name(name_of(dtype));
  const std::size_t size = size_of(dtype), kept = size_of(kernels::residual_type(dtype));
  // The array's elements if each moves so many bytes, in chunks that begin at a sector.
  const auto chunking = [this](std::size_t bytes_of_element) {
    const std::size_t count = 2 * bytes_ / bytes_of_element;
    const std::size_t chunk = std::max<std::size_t>(4096, count / kChunks) / 64 * 64;
    return kernels::Chunking{count / chunk * chunk, chunk};
  };
  auto* const norms = reinterpret_cast<float*>(lists_.get());
  const std::span indices(reinterpret_cast<std::uint32_t*>(norms + kMostChunks), kMostChunks);
  check(kernels_.number(kDevice, indices.data(), indices.size(), {0, 2}, stream_));
  const kernels::Chunking all = chunking(2 * (kept + size));
  add("accumulate_" + name, 2 * (sectors(0, all.count * kept) + sectors(0, all.count * size)),
      [=, this](const Place& place, GpuStream stream) {
        return kernels_.accumulate(kDevice, norms, {place.to}, place.from, all, dtype, stream);
      });
  const auto chosen = [indices](kernels::Chunking of) { return indices.first(of.chunks() / 2); };
  const auto moved = [&](kernels::Chunking of, std::size_t bytes) {
    return chosen(of).size() * sectors(0, of.chunk * bytes);
  };
  // Reads and writes the residual, and writes what is sent.
  const kernels::Chunking gathered = chunking((2 * kept + size + 1) / 2);
  add("gather_" + name, 2 * moved(gathered, kept) + moved(gathered, size),
      [=, this](const Place& place, GpuStream stream) {
        return kernels_.gather(kDevice, place.to, place.from, gathered, chosen(gathered), dtype, stream);
      });
  const kernels::Chunking scattered = chunking(sizeof(float));  // it fills its place
  add("scatter_" + name + "_to_float32", moved(scattered, sizeof(float)) + moved(scattered, size),
      [=, this](const Place& place, GpuStream stream) {
        return kernels_.scatter(kDevice, place.to, DType::kFloat32, place.from, dtype, scattered,
                                chosen(scattered), stream);
      });
}

// The products of PowerSGD, with a matrix and its residual. Their vectors and sums are small beside these,
// and are not counted.
void Bench::add_products(DType dtype) {
  const std::size_t size = size_of(dtype), kept = size_of(kernels::residual_type(dtype));
  const std::size_t most_rows = 2 * bytes_ / (size + kept) / kColumns;
  std::byte* const left = zeroed(kRank * most_rows * kept);
  std::byte* const right = zeroed(kRank * kColumns * kept);
  std::byte* const sums = zeroed(kernels_.project_back_scratch(most_rows, kColumns, kRank, dtype));
  using Product = std::function<Status(const kernels::LowRankBlock&, GpuStream)>;
  const auto add_product = [&](const char* name, std::size_t accesses, const Product& product) {
    const std::size_t rows = most_rows / accesses;
    add(
        name + ("_" + std::string(name_of(dtype))), accesses * sectors(0, rows * kColumns * (size + kept)),
        [=](const Place& place, GpuStream stream) {
          return product({place.to,
                          place.from,
                          1,
                          rows,
                          kColumns,
                          kColumns,
                          {left, rows, kRank},
                          {right, kColumns, kRank}},
                         stream);
        },
        Kind::kProduct);
  };
  add_product("project", 1, [=, this](const kernels::LowRankBlock& block, GpuStream stream) {
    return kernels_.project(kDevice, block, dtype, stream);
  });
  add_product("project_back", 1, [=, this](const kernels::LowRankBlock& block, GpuStream stream) {
    return kernels_.project_back(kDevice, block, dtype, sums, stream);
  });
  add_product("expand", 2, [=, this](const kernels::LowRankBlock& block, GpuStream stream) {
    return kernels_.expand(kDevice, block, 1.0, dtype, stream);
  });
}

void Bench::print_shares(Kind kind, double rate) {
  const char* between = "";
  for (std::size_t i = 2; i < contenders_.size(); ++i) {
    const Contender& one = contenders_[i];
    if (one.kind != kind) continue;
    std::printf("%s\n      \"%s\": %.3f", between, one.name.c_str(),
                static_cast<double>(one.bytes) / microseconds(i) / rate);
    between = ",";
  }
}

// One value in a hundred, of values from a normal distribution, or of zeros: all of them are at the edge
// then.
void Bench::add_selection(const std::string& name, const kernels::TopKRule& rule, int reads, bool equal) {
  const std::size_t count = bytes_ / sizeof(float), k = count / 100;
  add(
      name, 0,
      [=, this](const Place& place, GpuStream stream) {
        const auto* const values = reinterpret_cast<const float*>(equal ? zeros_ : place.from);
        auto* const chosen = reinterpret_cast<float*>(place.to);
        auto* const indices = reinterpret_cast<std::int64_t*>(place.to + bytes_);
        return kernels_.top_k(kDevice, {values, count}, rule, {chosen, k}, {indices, k}, scratch_.get(),
                              stream);
      },
      Kind::kSelection, reads);
}

void Bench::add_all() {
  add("copy", 2 * sectors(0, bytes_), [this](const Place& place, GpuStream stream) {
    return runtime_.copy(kDevice, place.to, place.from, bytes_, stream);
  });
  add("launch", 0, [this](const Place& place, GpuStream stream) {
    return kernels_.number(kDevice, reinterpret_cast<std::uint32_t*>(place.to), 1, {}, stream);
  });
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
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const std::size_t parts : {2, 4, 8}) add_reduction(dtype, parts);
    add_norms(dtype);
    add_chunks(dtype);
    add_products(dtype);
  }
  add_selection("mstopk", {kernels::Selection::kMsTopK, 20, 0}, 8, false);
  add_selection("radix", {kernels::Selection::kRadix}, 4, false);
  add_selection("radix_equal", {kernels::Selection::kRadix}, 10, true);
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
