#include "kernels/low_rank.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/cpu/chunk_loops.h"
#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "kernels/low_rank_order.h"

namespace roundelay::kernels {
namespace {

// Vectors for the algorithms of low_rank_order.h.
template <typename Real>
class VectorList {
 public:
  explicit VectorList(const Vectors& vectors) : vectors_(vectors) {}

  [[nodiscard]] double dot(std::size_t k, std::size_t j) const {
    alignas(64) double sum[kNormSums] = {};
    for (std::size_t begin = 0; begin < vectors_.length; begin += kNormSums) {
      const std::size_t left = std::min<std::size_t>(kNormSums, vectors_.length - begin);
      for (std::size_t i = 0; i < left; ++i) sum[i] += number(k, begin + i) * number(j, begin + i);
    }
    return add_up(sum);
  }
  void add(std::size_t k, double factor, std::size_t j) const {
    combine(at(k), 1.0, at(j), factor, vectors_.length, kType);
  }
  void scale(std::size_t k, double factor) const {
    combine(at(k), factor, at(k), 0.0, vectors_.length, kType);
  }
  void clear(std::size_t k) const { std::memset(at(k), 0, bytes()); }
  void fill(std::size_t k, std::uint64_t seed) const {
    for (std::size_t i = 0; i < vectors_.length; ++i)
      store<Real>(at(k) + i * sizeof(Real), static_cast<Real>(drawn(seed, i)));
  }
  void take(std::size_t k, const VectorList& from) const {
    if (at(k) != from.at(k)) std::memcpy(at(k), from.at(k), bytes());
  }
  static double inverse_root(double square) { return 1.0 / std::sqrt(square); }

 private:
  static constexpr DType kType = sizeof(Real) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;
  [[nodiscard]] std::size_t bytes() const { return vectors_.length * sizeof(Real); }
  [[nodiscard]] std::byte* at(std::size_t k) const { return vectors_.data + k * bytes(); }
  [[nodiscard]] double number(std::size_t k, std::size_t i) const {
    return static_cast<double>(load<Real>(at(k) + i * sizeof(Real)));
  }

  const Vectors& vectors_;
};

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
  if (dtype == DType::kFloat64) {
    orthonormalise_list<double>(VectorList<double>(vectors), vectors.count);
  } else {
    orthonormalise_list<float>(VectorList<float>(vectors), vectors.count);
  }
}

void renew(const Vectors& to, const Vectors& from, std::uint64_t seed, DType dtype) {
  if (dtype == DType::kFloat64) {
    renew_list(VectorList<double>(to), VectorList<double>(from), to.count, seed);
  } else {
    renew_list(VectorList<float>(to), VectorList<float>(from), to.count, seed);
  }
}

}  // namespace roundelay::kernels
