// A slow model of power_sgd in fp64: algorithms 1 and 2 of the paper on whole matrices (Vogels et al., arXiv
// 1905.13727), with the warm start of the core.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/low_rank.h"
#include "tests/cpp/unit/node_members.h"

namespace roundelay::compress::power_sgd {

// A matrix of rows.
struct Dense {
  Dense(std::size_t of_rows, std::size_t of_columns)
      : rows(of_rows), columns(of_columns), at(of_rows * of_columns) {}
  double& operator()(std::size_t row, std::size_t column) { return at[row * columns + column]; }
  double operator()(std::size_t row, std::size_t column) const { return at[row * columns + column]; }
  [[nodiscard]] Dense transposed() const {
    Dense made(columns, rows);
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t column = 0; column < columns; ++column) made(column, row) = (*this)(row, column);
    return made;
  }
  [[nodiscard]] double norm() const {
    double sum = 0;
    for (const double one : at) sum += one * one;
    return std::sqrt(sum);
  }

  std::size_t rows, columns;
  std::vector<double> at;
};

inline Dense operator*(const Dense& a, const Dense& b) {
  Dense made(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t k = 0; k < a.columns; ++k)
      for (std::size_t j = 0; j < b.columns; ++j) made(i, j) += a(i, k) * b(k, j);
  return made;
}

inline Dense operator-(const Dense& a, const Dense& b) {
  Dense made = a;
  for (std::size_t i = 0; i < made.at.size(); ++i) made.at[i] -= b.at[i];
  return made;
}

inline Dense operator+(const Dense& a, const Dense& b) {
  Dense made = a;
  for (std::size_t i = 0; i < made.at.size(); ++i) made.at[i] += b.at[i];
  return made;
}

// Gram-Schmidt on the columns.
inline void orthonormalise(Dense& p) {
  for (std::size_t k = 0; k < p.columns; ++k) {
    for (std::size_t j = 0; j < k; ++j) {
      double dot = 0;
      for (std::size_t i = 0; i < p.rows; ++i) dot += p(i, j) * p(i, k);
      for (std::size_t i = 0; i < p.rows; ++i) p(i, k) -= dot * p(i, j);
    }
    double square = 0;
    for (std::size_t i = 0; i < p.rows; ++i) square += p(i, k) * p(i, k);
    for (std::size_t i = 0; i < p.rows; ++i) p(i, k) /= std::sqrt(square);
  }
}

// One matrix: what all ranks together keep of it, and its right factors.
struct MatrixModel {
  MatrixModel(std::size_t rows, std::size_t columns, std::size_t rank, std::uint64_t seed)
      : kept(rows, columns), q(columns, rank) {
    Dense first(rank, columns);
    const kernels::Vectors vectors{reinterpret_cast<std::byte*>(first.at.data()), columns, rank};
    kernels::renew(vectors, vectors, seed, DType::kFloat64);
    q = first.transposed();
  }
  // Takes the sum of all ranks' gradients, and returns what is sent of it and of what was kept.
  Dense step(const Dense& sum) {
    const Dense u = sum + kept;
    Dense p = u * q;
    orthonormalise(p);
    q = u.transposed() * p;
    const Dense sent = p * q.transposed();
    kept = u - sent;
    return sent;
  }

  Dense kept, q;
};

}  // namespace roundelay::compress::power_sgd
