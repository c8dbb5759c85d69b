// Compares the kernels of low-rank approximations with memcpy on this processor. Prints one JSON object.
//
//   cmake --build build/dev --target bench_low_rank && build/dev/csrc/bench_low_rank
//
// A kernel's bytes are those of the matrix and of its residual that it reads and writes; its factors stay in
// the cache. Numbers are medians. `python -m benchmarks.low_rank` adds the time of torch.matmul.
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/turns.h"
#include "kernels/cpu/table.h"
#include "kernels/low_rank.h"

namespace roundelay::kernels {
namespace {

constexpr std::size_t kRows = 4096, kColumns = 2048, kElements = kRows * kColumns;
constexpr std::size_t kMostRank = 8;
constexpr int kRounds = 15;

class Bench {
 public:
  Bench()
      : values_(kElements, 0.5F),
        residual_(kElements, 0.25F),
        left_(kMostRank * kRows, 0.001F),
        right_(kMostRank * kColumns, 0.001F),
        copy_(kElements) {
    const std::size_t bytes = kElements * sizeof(float);
    turns_.add("copy", 2 * bytes, [=, this] { std::memcpy(copy_.data(), values_.data(), bytes); });
    for (const std::size_t rank : {1, 2, 4, 8}) {
      const std::string of = "_rank_" + std::to_string(rank);
      turns_.add("project" + of, 2 * bytes, [=, this] { project(block(rank), DType::kFloat32); });
      turns_.add("project_back" + of, 2 * bytes, [=, this] { project_back(block(rank), DType::kFloat32); });
      turns_.add("expand" + of, 4 * bytes, [=, this] { expand(block(rank), 1e-6, DType::kFloat32); });
    }
  }
  void run() {
    turns_.run(kRounds);
    turns_.print(best_table().name, kElements);
  }

 private:
  LowRankBlock block(std::size_t rank) {
    return {.values = bytes_of(values_),
            .residual = bytes_of(residual_),
            .rows = kRows,
            .columns = kColumns,
            .stride = kColumns,
            .left = {bytes_of(left_), kRows, rank},
            .right = {bytes_of(right_), kColumns, rank}};
  }
  static std::byte* bytes_of(std::vector<float>& of) { return reinterpret_cast<std::byte*>(of.data()); }

  std::vector<float> values_, residual_, left_, right_, copy_;
  Turns turns_;
};

}  // namespace
}  // namespace roundelay::kernels

int main() { roundelay::kernels::Bench().run(); }
