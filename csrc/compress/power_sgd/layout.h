// The matrices of a bucket, and the places of their factors. Pure.
//
// PowerSGD takes the gradient of a parameter for a matrix M, and sends it as L R^T: the *left factors* L have
// a column of M's height for each rank of the approximation, the *right factors* R one of M's width.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compress/technique.h"

namespace roundelay::compress::power_sgd {

// The technique's parameters, the same on all ranks.
struct Options {
  std::vector<std::uint32_t> columns;  // the width of each parameter's matrix; 0: the parameter goes densely
  std::size_t rank = 1;                // the highest rank of an approximation
  std::uint64_t seed = 0;              // gives the random right factors with which the first run begins
  std::optional<DType> wire_type;      // the type in which fp32 elements travel; none: their own
};

// A part of a matrix: `rows` rows from number `row` on, of each `columns` elements from number `column` on.
struct Block {
  std::size_t row = 0, column = 0, rows = 0, columns = 0;
};

// The matrix of one parameter, whose elements lie row by row, and its factors: `rank` vectors of `rows`
// elements, one after the other, and `rank` vectors of `columns` elements.
struct Matrix {
  Slice slice;  // its elements in the bucket
  std::size_t rows = 0, columns = 0, rank = 0;
  // The index of its first element among the left factors of all matrices, and among the right factors.
  std::size_t left = 0, right = 0;

  // Calls use(block) for blocks that together have the matrix's elements in `range`, a range of the bucket:
  // the end of a row, whole rows, the beginning of a row.
  template <typename Use>
  void each_block(const Slice& range, Use use) const {
    const std::size_t end = std::min(range.first + range.count, slice.first + slice.count);
    std::size_t at = std::max(range.first, slice.first) - slice.first;
    const std::size_t last = std::max(end, slice.first) - slice.first;
    while (at < last) {
      const std::size_t column = at % columns, left_over = last - at;
      const bool whole = column == 0 && left_over >= columns;
      const Block block{at / columns, column, whole ? left_over / columns : 1,
                        whole ? columns : std::min(columns - column, left_over)};
      use(block);
      at += block.rows * block.columns;
    }
  }
};

struct FactorLayout {
  std::vector<Matrix> matrices;
  std::vector<Slice> dense;         // the parameters that go densely
  std::size_t dense_elements = 0;   // the number of their elements
  std::size_t left = 0, right = 0;  // elements of all left factors, and of all right factors
};

// Returns the layout of a bucket with this shape. Precondition: the number of columns divides the number of a
// parameter's elements. A matrix never has a higher rank than it has rows or columns.
[[nodiscard]] inline FactorLayout layout_of(const Options& options, const BucketShape& shape) {
  FactorLayout layout;
  for (std::size_t i = 0; i < shape.parameters.size(); ++i) {
    const Slice& slice = shape.parameters[i];
    const std::size_t columns = options.columns[i];
    if (columns == 0 || slice.count == 0) {
      layout.dense.push_back(slice);
      layout.dense_elements += slice.count;
      continue;
    }
    const std::size_t rows = slice.count / columns;
    const std::size_t rank = std::min({options.rank, rows, columns});
    layout.matrices.push_back({slice, rows, columns, rank, layout.left, layout.right});
    layout.left += rank * rows;
    layout.right += rank * columns;
  }
  return layout;
}

// Returns the most elements that all right factors can have, for any numbers of rows. They are kept from run
// to run, in memory of this size.
[[nodiscard]] inline std::size_t most_right(const Options& options) {
  std::size_t elements = 0;
  for (const std::size_t columns : options.columns) elements += std::min(options.rank, columns) * columns;
  return elements;
}

}  // namespace roundelay::compress::power_sgd
