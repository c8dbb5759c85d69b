// Arithmetic on low-rank approximations of matrices: M is nearly the sum over k of left_k x right_k, where
// left_k is a column of numbers and right_k a row. Thread-safe; allocates nothing; memory may be unaligned.
// It takes floating types only.
//
// Source: PowerSGD (Vogels et al., arXiv 1905.13727), algorithm 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/chunks.h"

namespace roundelay::kernels {

// Vectors of equal length, one after the other in memory.
struct Vectors {
  std::byte* data = nullptr;
  std::size_t length = 0;  // elements of a vector, and from one to the next
  std::size_t count = 0;
};

// Rows and columns of a matrix, and their part of its factors. `values` are elements of a matrix M, row by
// row, and `residual` has residual_type() and the same places. The functions work on U = weight * M +
// residual.
struct LowRankBlock {
  std::byte* values = nullptr;
  std::byte* residual = nullptr;  // null: it is zero, and not written
  double weight = 1;
  std::size_t rows = 0, columns = 0;
  std::size_t stride = 0;  // elements from a row to the next
  // Their elements have residual_type(). Their data begins with the block's first row or column.
  Vectors left, right;
};

// Adds U right_k to left_k, for each k. The order of additions depends on the block's columns alone.
void project(const LowRankBlock& block, DType dtype);
// Adds left_k U to right_k, for each k. The order of additions depends on the block's rows alone.
void project_back(const LowRankBlock& block, DType dtype);
// Computes A, the sum over k of left_k x right_k, sets the residual to U - share * A and M to A, rounded
// once. A residual stays as it is where U - share * A is not finite: after an overflow nothing is kept of it.
void expand(const LowRankBlock& block, double share, DType dtype);

// Makes the vectors orthonormal, one after the other (modified Gram-Schmidt, twice). A vector that depends on
// those before it within rounding, or is zero, becomes zero. If an element of a vector is not finite, this
// vector and those after it become not finite. `dtype` is fp32 or fp64.
void orthonormalise(const Vectors& vectors, DType dtype);
// Sets each vector of `to` to that of `from`, scaled to length 1. If the vector of `from` is zero, that of
// `to` becomes random; the numbers depend on the seed and their places. If it is not finite, that of `to`
// stays as it was. `from` may be `to`. `dtype` is fp32 or fp64.
void renew(const Vectors& to, const Vectors& from, std::uint64_t seed, DType dtype);

}  // namespace roundelay::kernels
