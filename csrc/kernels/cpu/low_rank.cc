#include "kernels/low_rank.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"

namespace roundelay::kernels {
namespace {

class VectorList {
 public:
  VectorList(const Vectors& vectors, DType dtype) : vectors_(vectors), dtype_(dtype) {}

  [[nodiscard]] std::size_t bytes() const { return vectors_.length * size_of(dtype_); }
  [[nodiscard]] std::byte* operator[](std::size_t k) const { return vectors_.data + k * bytes(); }
  [[nodiscard]] double dot(std::size_t k, std::size_t j) const {
    return dots((*this)[k], (*this)[j], vectors_.length, dtype_).ab;
  }
  // Adds factor times vector j to vector k.
  void add(std::size_t k, double factor, std::size_t j) const {
    combine((*this)[k], 1.0, (*this)[j], factor, vectors_.length, dtype_);
  }
  void scale(std::size_t k, double factor) const {
    combine((*this)[k], factor, (*this)[k], 0.0, vectors_.length, dtype_);
  }
  void clear(std::size_t k) const { std::memset((*this)[k], 0, bytes()); }

 private:
  const Vectors& vectors_;
  const DType dtype_;
};

// Returns well mixed bits (SplitMix64).
constexpr std::uint64_t mixed(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31U);
}

// Fills the vector with numbers from -1 to 1, which fp32 holds exactly.
void fill(std::byte* to, std::size_t length, std::uint64_t seed, DType dtype) {
  for (std::size_t i = 0; i < length; ++i) {
    const double number = static_cast<double>(mixed(seed + i) >> 40U) * 0x1p-23 - 1.0;
    cast(to + i * size_of(dtype), dtype, &number, DType::kFloat64, 1);
  }
}

}  // namespace

void project(const LowRankBlock& block, DType dtype) {
  const ProjectFunction function = best_table().project[index_of(dtype)];
  assert(function != nullptr);
  function(block);
}

void project_back(const LowRankBlock& block, DType dtype) {
  const ProjectFunction function = best_table().project_back[index_of(dtype)];
  assert(function != nullptr);
  function(block);
}

void expand(const LowRankBlock& block, double share, DType dtype) {
  const ExpandFunction function = best_table().expand[index_of(dtype)];
  assert(function != nullptr);
  function(block, share);
}

void orthonormalise(const Vectors& vectors, DType dtype) {
  const double epsilon = dtype == DType::kFloat64
                             ? std::numeric_limits<double>::epsilon()
                             : static_cast<double>(std::numeric_limits<float>::epsilon());
  const double dependent = 16 * epsilon;  // the part of a vector that rounding may have made
  const VectorList list(vectors, dtype);
  for (std::size_t k = 0; k < vectors.count; ++k) {
    const double before = list.dot(k, k);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < k; ++j) list.add(k, -list.dot(k, j), j);
    }
    const double after = list.dot(k, k);
    if (!std::isfinite(after)) {
      list.scale(k, std::numeric_limits<double>::quiet_NaN());
    } else if (after <= before * dependent * dependent) {
      list.clear(k);
    } else {
      list.scale(k, 1.0 / std::sqrt(after));
    }
  }
}

void renew(const Vectors& to, const Vectors& from, std::uint64_t seed, DType dtype) {
  const VectorList own(to, dtype), given(from, dtype);
  for (std::size_t k = 0; k < to.count; ++k) {
    const double square = given.dot(k, k);
    if (!std::isfinite(square)) continue;
    if (square == 0) {
      fill(own[k], to.length, mixed(seed + k), dtype);
      own.scale(k, 1.0 / std::sqrt(own.dot(k, k)));
    } else {
      if (own[k] != given[k]) std::memcpy(own[k], given[k], own.bytes());
      own.scale(k, 1.0 / std::sqrt(square));
    }
  }
}

}  // namespace roundelay::kernels
