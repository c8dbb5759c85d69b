// Low-rank approximations against slow versions, for every instruction set.
#include <cmath>
#include <limits>
#include <random>

#include "kernels/cpu/table.h"
#include "kernels/low_rank.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using reference::Guarded;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// A block in a wider matrix, whose numbers are small multiples of 1/8, so that all sums are exact.
struct Case {
  DType dtype;
  std::size_t rows, columns, stride, count;
  bool kept;
};

class Arrays {
 public:
  Arrays(const Case& of, unsigned seed)
      : of_(of),
        real_(residual_type(of.dtype)),
        values_(of.dtype, of.rows * of.stride),
        residual_(real_, of.rows * of.stride, 5),
        left_(real_, of.rows * of.count, 3),
        right_(real_, of.stride * of.count, 1),
        random_(seed) {
    fill(values_, of.dtype, of.rows * of.stride);
    fill(residual_, real_, of.rows * of.stride);
    fill(left_, real_, of.rows * of.count);
    fill(right_, real_, of.stride * of.count);
  }
  LowRankBlock block() {
    return {.values = values_.data(),
            .residual = of_.kept ? residual_.data() : nullptr,
            .weight = 2,
            .rows = of_.rows,
            .columns = of_.columns,
            .stride = of_.stride,
            .left = {left_.data(), of_.rows, of_.count},
            .right = {right_.data(), of_.stride, of_.count}};
  }
  double value(std::size_t row, std::size_t column) {
    return at(values_, of_.dtype, row * of_.stride + column);
  }
  double kept(std::size_t row, std::size_t column) { return at(residual_, real_, row * of_.stride + column); }
  double u(std::size_t row, std::size_t column) {
    return 2 * value(row, column) + (of_.kept ? kept(row, column) : 0);
  }
  double left(std::size_t k, std::size_t row) { return at(left_, real_, k * of_.rows + row); }
  double right(std::size_t k, std::size_t column) { return at(right_, real_, k * of_.stride + column); }
  double product(std::size_t row, std::size_t column) {
    double sum = 0;
    for (std::size_t k = 0; k < of_.count; ++k) sum += left(k, row) * right(k, column);
    return sum;
  }
  void set(std::size_t row, std::size_t column, double value) {
    reference::write(of_.dtype, values_.data() + (row * of_.stride + column) * size_of(of_.dtype), value);
  }
  [[nodiscard]] bool intact() const {
    return values_.intact() && residual_.intact() && left_.intact() && right_.intact();
  }

 private:
  static double at(Guarded& array, DType type, std::size_t i) {
    return reference::read(type, array.data() + i * size_of(type));
  }
  void fill(Guarded& array, DType type, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const double number = static_cast<double>(static_cast<int>(random_() % 33) - 16) / 8;
      reference::write(type, array.data() + i * size_of(type), number);
    }
  }

  const Case of_;
  const DType real_;
  Guarded values_, residual_, left_, right_;
  std::mt19937 random_;
};

template <typename Test>
void for_each_case(Test test) {
  constexpr std::pair<std::size_t, std::size_t> kSizes[] = {{1, 1},    {2, 7},     {5, 16}, {9, 33},
                                                            {4, 2100}, {131, 270}, {0, 5}};
  for (const Table& table : usable_tables()) {
    for (const DType dtype : kFloating) {
      for (const auto& [rows, columns] : kSizes) {
        for (const std::size_t count : {1, 2, 3, 4, 6}) {
          const bool kept = (rows + count) % 2 == 0;
          INFO(table.name << ", " << rows << " x " << columns << " of " << name_of(dtype) << ", " << count);
          test(table, Case{dtype, rows, columns, columns + 3, count, kept});
        }
      }
    }
  }
}

TEST_CASE("a matrix times its right factors is added to the left ones, and back", "[kernels][low_rank]") {
  for_each_case([](const Table& table, const Case& of) {
    Arrays before(of, 1), left(of, 1), right(of, 1);
    table.project[index_of(of.dtype)](left.block());
    table.project_back[index_of(of.dtype)](right.block());
    for (std::size_t k = 0; k < of.count; ++k) {
      for (std::size_t row = 0; row < of.rows; ++row) {
        double sum = before.left(k, row);
        for (std::size_t c = 0; c < of.columns; ++c) sum += before.u(row, c) * before.right(k, c);
        REQUIRE(left.left(k, row) == sum);
      }
      for (std::size_t c = 0; c < of.columns; ++c) {
        double sum = before.right(k, c);
        for (std::size_t row = 0; row < of.rows; ++row) sum += before.u(row, c) * before.left(k, row);
        REQUIRE(right.right(k, c) == sum);
      }
      for (std::size_t c = of.columns; c < of.stride && of.rows > 0; ++c)
        REQUIRE(right.right(k, c) == before.right(k, c));
    }
    REQUIRE(left.intact());
    REQUIRE(right.intact());
  });
}

TEST_CASE("factors expand to a matrix, and the residual takes what it lacks", "[kernels][low_rank]") {
  for_each_case([](const Table& table, const Case& of) {
    Arrays before(of, 2), after(of, 2);
    table.expand[index_of(of.dtype)](after.block(), 0.5);
    for (std::size_t row = 0; row < of.rows; ++row) {
      for (std::size_t c = 0; c < of.stride; ++c) {
        const bool inside = c < of.columns;
        const double product = before.product(row, c);
        std::array<std::byte, 8> rounded{};
        reference::write(of.dtype, rounded.data(), product);
        const double value = inside ? reference::read(of.dtype, rounded.data()) : before.value(row, c);
        const double kept = inside && of.kept ? before.u(row, c) - 0.5 * product : before.kept(row, c);
        REQUIRE(after.value(row, c) == value);
        REQUIRE(after.kept(row, c) == kept);
      }
    }
    REQUIRE(after.intact());
  });
}

TEST_CASE("an overflow shows in the matrix, and the residual stays", "[kernels][low_rank]") {
  for (const Table& table : usable_tables()) {
    for (const double wrong : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      const Case of{DType::kFloat32, 3, 21, 21, 2, true};
      Arrays before(of, 3), after(of, 3);
      after.set(1, 20, wrong);
      const LowRankBlock block = after.block();
      table.project[index_of(of.dtype)](block);
      CHECK(!std::isfinite(after.left(0, 1)));
      CHECK(!std::isfinite(after.left(1, 1)));
      orthonormalise(block.left, DType::kFloat32);
      table.project_back[index_of(of.dtype)](block);
      table.expand[index_of(of.dtype)](block, 1.0);
      for (std::size_t c = 0; c < of.columns; ++c) {
        for (std::size_t row = 0; row < of.rows; ++row) {
          REQUIRE(std::isnan(after.value(row, c)));
          REQUIRE(after.kept(row, c) == before.kept(row, c));
        }
      }
    }
  }
}

template <typename T>
Vectors vectors_of(std::vector<T>& numbers, std::size_t length) {
  return {reinterpret_cast<std::byte*>(numbers.data()), length, numbers.size() / length};
}

template <typename T>
double dot(const std::vector<T>& numbers, std::size_t length, std::size_t k, std::size_t j) {
  double sum = 0;
  for (std::size_t i = 0; i < length; ++i)
    sum += static_cast<double>(numbers[k * length + i]) * static_cast<double>(numbers[j * length + i]);
  return sum;
}

TEMPLATE_TEST_CASE("vectors become orthonormal, and dependent ones zero", "[kernels][low_rank]", float,
                   double) {
  constexpr std::size_t kLength = 37, kCount = 5;
  const DType dtype = sizeof(TestType) == 8 ? DType::kFloat64 : DType::kFloat32;
  const double tolerance = sizeof(TestType) == 8 ? 1e-14 : 1e-6;
  std::mt19937 random(4);
  std::vector<TestType> numbers(kLength * kCount);
  for (TestType& number : numbers)
    number = static_cast<TestType>(std::ldexp(static_cast<double>(random()), -32));
  // Vector 2 is nearly vector 0, vector 3 is a multiple of it, and vector 4 is zero.
  for (std::size_t i = 0; i < kLength; ++i) {
    numbers[2 * kLength + i] = numbers[i] + static_cast<TestType>(1e-3) * numbers[2 * kLength + i];
    numbers[3 * kLength + i] = 3 * numbers[i];
    numbers[4 * kLength + i] = 0;
  }
  orthonormalise(vectors_of(numbers, kLength), dtype);
  for (std::size_t k = 0; k < kCount; ++k) {
    for (std::size_t j = 0; j < kCount; ++j)
      CHECK(std::abs(dot(numbers, kLength, k, j) - (k == j && k < 3 ? 1 : 0)) < tolerance);
  }
}

TEST_CASE("one vector of one number becomes exactly one", "[kernels][low_rank]") {
  for (const float number : {3.0F, -49.0F, 1e-30F, -3e30F}) {
    std::vector<float> numbers = {number};
    orthonormalise(vectors_of(numbers, 1), DType::kFloat32);
    CHECK(numbers[0] == (number < 0 ? -1.0F : 1.0F));
  }
}

TEST_CASE("right factors are scaled, drawn where they are zero, and kept where they overflow",
          "[kernels][low_rank]") {
  constexpr std::size_t kLength = 6;
  std::vector<float> from = {3, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, NAN, 1, 1, 1}, to(from.size(), 7);
  renew(vectors_of(to, kLength), vectors_of(from, kLength), 5, DType::kFloat32);
  CHECK(std::vector<float>(to.begin(), to.begin() + 6) == std::vector<float>{0.6F, 0, 0.8F, 0, 0, 0});
  CHECK(std::abs(dot(to, kLength, 1, 1) - 1) < 1e-6);
  CHECK(std::vector<float>(to.begin() + 12, to.end()) == std::vector<float>(6, 7));
  // The seed and the place say which numbers are drawn.
  std::vector<float> same(2 * kLength), other(2 * kLength);
  renew(vectors_of(same, kLength), vectors_of(same, kLength), 5, DType::kFloat32);
  renew(vectors_of(other, kLength), vectors_of(other, kLength), 6, DType::kFloat32);
  CHECK(std::equal(same.begin() + kLength, same.end(), to.begin() + kLength));
  CHECK(same != other);
  CHECK(std::abs(dot(same, kLength, 0, 1)) < 0.99);
}

}  // namespace
}  // namespace roundelay::kernels
