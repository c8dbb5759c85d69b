// Compares the kernels of chunks and residuals with memcpy on this processor. Prints one JSON object.
//
//   cmake --build build/dev --target bench_chunks && build/dev/csrc/bench_chunks
//
// A kernel's bandwidth is that of the bytes that it has to read and write, and a copy's likewise. All take
// turns in each round; the numbers are medians, as fractions of the copy's bandwidth.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/turns.h"
#include "kernels/chunks.h"
#include "kernels/cpu/table.h"
#include "kernels/kernels.h"

namespace roundelay::kernels {
namespace {

constexpr std::size_t kCount = 16 << 20;  // elements
constexpr std::size_t kChunk = 32768;
constexpr int kRounds = 15;
constexpr Chunking kOf{kCount, kChunk};

class Bench {
 public:
  Bench() : residual_(kCount, 1.0F), momentum_(kCount, 1.0F), values_(kCount, 0.5F), message_(kCount) {
    turns_.add("copy", 2 * kCount * sizeof(float),
               [this] { std::memcpy(message_.data(), values_.data(), kCount * sizeof(float)); });
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) add_all(dtype);
  }
  void run() {
    turns_.run(kRounds);
    turns_.print(best_table().name, kCount);
  }

 private:
  void add_all(DType dtype) {
    const std::string name(name_of(dtype));
    const std::size_t size = size_of(dtype), kept = sizeof(float);
    turns_.add("accumulate_" + name, kCount * 2 * (kept + size),
               [=, this] { accumulate_all(dtype, nullptr); });
    turns_.add("accumulate_with_momentum_" + name, kCount * 2 * (2 * kept + size),
               [=, this] { accumulate_all(dtype, bytes_of(momentum_)); });
    turns_.add("gather_" + name, kCount * (2 * kept + size), [=, this] {
      for (std::size_t i = 0; i < kOf.chunks(); ++i)
        take(at(message_, i, size), at(residual_, i, kept), kOf.size(i), dtype);
    });
    turns_.add("scatter_" + name + "_to_float32", kCount * (kept + size), [=, this] {
      for (std::size_t i = 0; i < kOf.chunks(); ++i)
        cast(at(values_, i, kept), DType::kFloat32, at(message_, i, size), dtype, kOf.size(i));
    });
  }
  void accumulate_all(DType dtype, std::byte* momentum) {
    const Kept kept{bytes_of(residual_), momentum, {0.5, false}};
    for (std::size_t i = 0; i < kOf.chunks(); ++i)
      accumulate(chunk_of(kept, kOf, i, dtype), at(values_, i, size_of(dtype)), kOf.size(i), dtype);
  }
  static std::byte* bytes_of(std::vector<float>& of) { return reinterpret_cast<std::byte*>(of.data()); }
  static std::byte* at(std::vector<float>& of, std::size_t chunk, std::size_t size) {
    return bytes_of(of) + chunk * kChunk * size;
  }

  std::vector<float> residual_, momentum_, values_, message_;
  Turns turns_;
};

}  // namespace
}  // namespace roundelay::kernels

int main() {
  roundelay::kernels::Bench().run();
}
