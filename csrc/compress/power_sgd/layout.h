// The matrices of a bucket, and where their factors lie. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compress/technique.h"

namespace roundelay::compress::power_sgd {

struct Options {
  std::vector<std::uint32_t> columns;  // of each parameter's matrix; 0: it goes densely
  std::size_t rank = 1;                // of approximations, at most
  std::uint64_t seed = 0;
  std::optional<DType> wire;  // of fp32 elements; none: as they are
};

// Rows and columns of a matrix; all of them begin with the first one that is named.
struct Block {
  std::size_t row = 0, column = 0, rows = 0, columns = 0;
};

// The elements of a parameter, row by row, and the places of its factors, in elements: `rank` vectors with a
// number for each row, one behind the other, and `rank` vectors with a number for each column.
struct Matrix {
  Slice slice;
  std::size_t rows = 0, columns = 0, rank = 0;
  std::size_t left = 0, right = 0;  // among the left factors and the right factors of all matrices

  // Calls use(block) for blocks that together have the matrix's elements in the range: the end of a row,
  // whole rows, the begin of a row.
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

struct Layout {
  std::vector<Matrix> matrices;
  std::vector<Slice> dense;         // the parameters that go densely
  std::size_t dense_elements = 0;   // of these together
  std::size_t left = 0, right = 0;  // elements of all left factors, and of all right factors
};

// The options have a number of columns for each parameter, by which it can be divided.
[[nodiscard]] inline Layout layout_of(const Options& options, const BucketShape& shape) {
  Layout layout;
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

// Returns the most elements that all right factors together may have, whatever rows there are.
[[nodiscard]] inline std::size_t most_right(const Options& options) {
  std::size_t elements = 0;
  for (const std::size_t columns : options.columns) elements += std::min(options.rank, columns) * columns;
  return elements;
}

}  // namespace roundelay::compress::power_sgd
