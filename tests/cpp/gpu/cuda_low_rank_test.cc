// The CUDA kernels for low-rank approximations, compiled for the CPU: they must give all bits of
// kernels/low_rank.h. The "device" is a loop over the threads of a block.
#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/cuda/low_rank.cuh"
#include "kernels/low_rank.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/cuda/values.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels::cuda {
namespace {

struct Case {
  std::size_t rows, columns, stride, count;
  bool kept;
};
// Rows and columns on both sides of the sizes of tiles and blocks of threads, and more tiles than a block of
// threads takes at a time.
constexpr std::array kCases = {
    Case{1, 1, 1, 1, true},         Case{3, 7, 9, 2, false},       Case{64, 27, 27, 3, true},
    Case{65, 256, 260, 4, true},    Case{131, 257, 257, 6, false}, Case{200, 33, 40, 5, true},
    Case{5, 2048, 2048, 1, true},   Case{6, 2049, 2050, 4, false}, Case{3, 6000, 6000, 2, true},
    Case{2, 70001, 70001, 1, true}, Case{0, 5, 5, 2, true},        Case{1, 1000, 1300, 7, true}};

// Random numbers, aligned as a device's memory is.
class Numbers {
 public:
  Numbers(DType dtype, std::size_t count, unsigned seed) : at_(count + 2) {
    tests::draw_numbers(dtype, data(), count, seed);
  }
  [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(at_.data()); }
  bool operator==(const Numbers& other) const {
    return std::equal(at_.begin(), at_.end(), other.at_.begin(), other.at_.end(), [](double a, double b) {
      return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
    });
  }

 private:
  std::vector<double> at_;
};

struct Arrays {
  Arrays(const Case& of, DType dtype)
      : values(dtype, of.rows * of.stride, 1),
        residual(residual_type(dtype), of.rows * of.stride, 2),
        left(residual_type(dtype), (of.rows + 1) * of.count, 3),
        right(residual_type(dtype), of.stride * of.count, 4),
        block{.values = values.data(),
              .residual = of.kept ? residual.data() : nullptr,
              .weight = 3,
              .rows = of.rows,
              .columns = of.columns,
              .stride = of.stride,
              .left = {left.data(), of.rows + 1, of.count},
              .right = {right.data(), of.stride, of.count}} {}
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  bool operator==(const Arrays& other) const {
    return values == other.values && residual == other.residual && left == other.left && right == other.right;
  }
  Numbers values, residual, left, right;
  LowRankBlock block;
};

// Calls run.operator()<n>(first) for all vectors, n at a time.
template <typename Run>
void few_at_a_time(std::size_t count, Run run) {
  for (std::size_t first = 0; first < count; first += 4) {
    const std::size_t left = count - first;
    if (left >= 4) run.template operator()<4>(first);
    if (left == 3) run.template operator()<3>(first);
    if (left == 2) run.template operator()<2>(first);
    if (left == 1) run.template operator()<1>(first);
  }
}

template <DType kType>
void project_on_device(const LowRankBlock& block) {
  using Real = ResidualOf<kType>;
  const auto rows = static_cast<std::size_t>(project_shape<Real>(block.columns).rows);
  few_at_a_time(block.left.count, [&]<int kCount>(std::size_t first) {
    ProjectShared<Real, kCount> shared;
    for (std::size_t index = 0; index * rows < block.rows; ++index)
      project_block<kType, kCount>({block, first}, shared, index);
  });
}

template <typename Block>
void run_blocks(std::uint64_t blocks, Block block) {
  for (std::uint64_t b = 0; b < blocks; ++b) {
    for (int thread = 0; thread < kLowRankThreads; ++thread) block(Thread{thread, kLowRankThreads}, b);
  }
}

template <DType kType>
void project_back_on_device(const LowRankBlock& block) {
  using Real = ResidualOf<kType>;
  const std::uint64_t blocks = column_blocks(block);
  std::vector<Real> sums(row_tiles(block) * block.columns * block.right.count + 1);
  auto* const scratch = reinterpret_cast<std::byte*>(sums.data());
  few_at_a_time(block.right.count, [&]<int kCount>(std::size_t first) {
    run_blocks(row_tiles(block) * blocks, [&](Thread thread, std::uint64_t index) {
      sum_tile_block<kType, kCount>(thread, {{block, first}, scratch}, index);
    });
  });
  run_blocks(block.right.count * blocks, [&](Thread thread, std::uint64_t index) {
    add_tiles_block<kType>(thread, {{block, 0}, scratch}, index);
  });
}

template <DType kType>
void check_case(const Table& table, const Case& of) {
  INFO(table.name << ", " << of.rows << " x " << of.columns << " of " << name_of(kType) << ", " << of.count);
  Arrays host(of, kType), device(of, kType);
  table.project[index_of(kType)](host.block);
  project_on_device<kType>(device.block);
  REQUIRE(device == host);
  table.project_back[index_of(kType)](host.block);
  project_back_on_device<kType>(device.block);
  REQUIRE(device == host);
  table.expand[index_of(kType)](host.block, 0.3);
  const ExpandWork work{device.block, 0.3};
  run_blocks((of.rows * of.columns + kBlockElements - 1) / kBlockElements,
             [&](Thread thread, std::uint64_t index) { expand_block<kType>(thread, work, index); });
  REQUIRE(device == host);
}

TEST_CASE("the device's products of low rank have the CPU's bits", "[cuda][low_rank]") {
  for (const Table& table : usable_tables()) {
    for (const Case& of : kCases) {
      check_case<DType::kFloat64>(table, of);
      check_case<DType::kFloat32>(table, of);
      check_case<DType::kFloat16>(table, of);
      check_case<DType::kBFloat16>(table, of);
    }
  }
}

TEST_CASE("what is not finite becomes the one NaN on the device, and its residual stays",
          "[cuda][low_rank]") {
  const Case of{3, 20, 20, 2, true};
  Arrays before(of, DType::kFloat32), host(of, DType::kFloat32), device(of, DType::kFloat32);
  for (Arrays* const arrays : {&host, &device})
    reference::write(DType::kFloat32, arrays->left.data() + 4, std::numeric_limits<double>::infinity());
  kernels::expand(host.block, 1.0, DType::kFloat32);
  const ExpandWork work{device.block, 1.0};
  run_blocks(1,
             [&](Thread thread, std::uint64_t index) { expand_block<DType::kFloat32>(thread, work, index); });
  REQUIRE(device == host);
  REQUIRE(!(device.residual == before.residual));
  const auto* const kept = device.residual.data() + 20 * sizeof(float);
  REQUIRE(std::equal(kept, kept + 20 * sizeof(float), before.residual.data() + 20 * sizeof(float)));
}

template <typename Real>
void check_vectors(std::size_t length, std::size_t count) {
  INFO(length << " numbers, " << count << " vectors, " << sizeof(Real) << " bytes");
  constexpr DType kType = sizeof(Real) == 8 ? DType::kFloat64 : DType::kFloat32;
  double sum[kNormSums];
  for (const bool dependent : {false, true}) {
    Numbers host(kType, length * count, 5), device(kType, length * count, 5);
    for (Numbers* const numbers : {&host, &device}) {
      auto* const first = reinterpret_cast<Real*>(numbers->data());
      if (dependent && count > 1) std::copy_n(first, length, first + (count - 1) * length);
      if (dependent && count > 2) std::fill_n(first + length, length, Real{});
    }
    const Vectors of_host{host.data(), length, count}, of_device{device.data(), length, count};
    kernels::orthonormalise(of_host, kType);
    orthonormalise_list<Real>(BlockVectors<Real>(of_device, sum), count);
    REQUIRE(device == host);
    Numbers renewed(kType, length * count, 6), renewed_device(kType, length * count, 6);
    const Vectors to_host{renewed.data(), length, count}, to_device{renewed_device.data(), length, count};
    kernels::renew(to_host, of_host, 7, kType);
    renew_list(BlockVectors<Real>(to_device, sum), BlockVectors<Real>(of_device, sum), count, 7);
    REQUIRE(renewed_device == renewed);
    kernels::renew(of_host, of_host, 8, kType);
    renew_list(BlockVectors<Real>(of_device, sum), BlockVectors<Real>(of_device, sum), count, 8);
    REQUIRE(device == host);
  }
}

TEST_CASE("the device's vectors become orthonormal and are renewed as the CPU's", "[cuda][low_rank]") {
  for (const std::size_t length : {1, 5, 511, 513, 3000}) {
    for (const std::size_t count : {1, 2, 5}) {
      check_vectors<float>(length, count);
      check_vectors<double>(length, count);
    }
  }
}

}  // namespace
}  // namespace roundelay::kernels::cuda
