// The loops of low-rank approximations. All functions must be inlined, as in loops.h.
//
// They take kWidth elements at once, whatever the processor's vectors hold: the compiler splits a Wide into
// registers. So the order of additions (low_rank_order.h) is the same for every instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/chunk_element.h"
#include "kernels/element.h"
#include "kernels/low_rank.h"
#include "kernels/low_rank_order.h"

namespace roundelay::kernels {

inline constexpr std::size_t kStrip = 256;  // columns whose sums stay in the first-level cache

template <typename Real>
struct WideOf {
  using Type [[gnu::vector_size(kWideBytes)]] = Real;
  static constexpr std::size_t kWidth = kLanes<Real>;
};

// Reads elements of U and writes their new values, `count` at a time: kWidth, or fewer at the end of a row.
template <DType kType>
class BlockElements {
 public:
  using E = Element<kType>;
  using Stored = typename E::Stored;
  using Real = ResidualOf<kType>;
  using Wide = typename WideOf<Real>::Type;

  [[gnu::always_inline]] explicit BlockElements(const LowRankBlock& block)
      : values_(block.values), residual_(block.residual), weight_(static_cast<Real>(block.weight)) {}

  // Sets the first `count` elements of `to` to these numbers, and the others to zero.
  [[gnu::always_inline]] static void read(Wide& to, const std::byte* from, std::size_t count) {
    if (count < WideOf<Real>::kWidth) to = Wide{};
    std::memcpy(&to, from, count * sizeof(Real));
  }
  [[gnu::always_inline]] static void write(std::byte* to, const Wide& wide, std::size_t count) {
    std::memcpy(to, &wide, count * sizeof(Real));
  }
  // Sets `to` to elements of U, from number `at` on.
  [[gnu::always_inline]] void read(Wide& to, std::size_t at, std::size_t count) const {
    values(to, at, count);
    to *= weight_;
    if (residual_ == nullptr) return;
    Wide kept;
    read(kept, residual_ + at * sizeof(Real), count);
    to += kept;
  }
  [[gnu::always_inline]] void set_value(std::size_t at, const Wide& wide, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i)
      store<Stored>(values_ + (at + i) * sizeof(Stored), E::result(static_cast<typename E::Wide>(wide[i])));
  }
  // Writes `rest` to the residual, but for elements that are not finite. Precondition: there is a residual.
  [[gnu::always_inline]] void keep(std::size_t at, const Wide& rest, std::size_t count) const {
    Wide kept;
    read(kept, residual_ + at * sizeof(Real), count);
    kept = rest - rest == Wide{} ? rest : kept;
    write(residual_ + at * sizeof(Real), kept, count);
  }

 private:
  [[gnu::always_inline]] void values(Wide& to, std::size_t at, std::size_t count) const {
    if constexpr (sizeof(Stored) == sizeof(Real)) {
      read(to, values_ + at * sizeof(Stored), count);
    } else {
      to = Wide{};
      for (std::size_t i = 0; i < count; ++i)
        to[i] = static_cast<Real>(E::operand(load<Stored>(values_ + (at + i) * sizeof(Stored))));
    }
  }

  std::byte* const values_;
  std::byte* const residual_;
  const Real weight_;
};

template <typename Real>
[[gnu::always_inline]] inline std::byte* element(const Vectors& vectors, std::size_t k, std::size_t i) {
  return vectors.data + (k * vectors.length + i) * sizeof(Real);
}

// Calls step(column, count) for the columns of a tile, kWidth at a time, then for those that are left.
template <std::size_t kWidth, typename Step>
[[gnu::always_inline]] inline void each_wide(std::size_t from, std::size_t to, Step step) {
  std::size_t column = from;
  for (; column + kWidth <= to; column += kWidth) step(column, kWidth);
  if (column < to) step(column, to - column);
}

// Adds the tile's part of U right_k to left_k, for kCount vectors from number k on.
template <DType kType, std::size_t kCount>
[[gnu::always_inline]] inline void project_tile(const LowRankBlock& block, std::size_t k, std::size_t from,
                                                std::size_t to) {
  using Elements = BlockElements<kType>;
  using Real = typename Elements::Real;
  using Wide = typename Elements::Wide;
  constexpr std::size_t kWidth = WideOf<Real>::kWidth;
  const Elements elements(block);
  for (std::size_t row = 0; row < block.rows; ++row) {
    Wide sums[kCount] = {};
    each_wide<kWidth>(
        from, to, [&](std::size_t column, std::size_t count) __attribute__((always_inline)) {
          Wide own, vector;
          elements.read(own, row * block.stride + column, count);
          for (std::size_t j = 0; j < kCount; ++j) {
            Elements::read(vector, element<Real>(block.right, k + j, column), count);
            sums[j] += own * vector;
          }
        });
    for (std::size_t j = 0; j < kCount; ++j) {
      std::byte* const at = element<Real>(block.left, k + j, row);
      Real sum{};
      for (std::size_t i = 0; i < kWidth; ++i) sum += sums[j][i];
      store<Real>(at, load<Real>(at) + sum);
    }
  }
}

// The sums of a tile of rows, for the columns of a strip and kCount vectors from number k on.
template <DType kType, std::size_t kCount>
class StripSums {
 public:
  using Elements = BlockElements<kType>;
  using Real = typename Elements::Real;
  using Wide = typename Elements::Wide;

  [[gnu::always_inline]] StripSums(const LowRankBlock& block, std::size_t k, std::size_t from, std::size_t to)
      : block_(block), elements_(block), k_(k), from_(from), to_(to) {}

  // Adds kRows rows times their left factors.
  template <std::size_t kRows>
  [[gnu::always_inline]] void add(std::size_t row) {
    each_wide<kLanes<Real>>(
        from_, to_, [&](std::size_t column, std::size_t count) __attribute__((always_inline)) {
          Wide own[kRows];
          for (std::size_t i = 0; i < kRows; ++i)
            elements_.read(own[i], (row + i) * block_.stride + column, count);
          for (std::size_t j = 0; j < kCount; ++j) {
            Wide sum = own[0] * load<Real>(element<Real>(block_.left, k_ + j, row));
            for (std::size_t i = 1; i < kRows; ++i)
              sum += own[i] * load<Real>(element<Real>(block_.left, k_ + j, row + i));
            sums_[j][(column - from_) / kLanes<Real>] += sum;
          }
        });
  }
  // Adds the sums to the right factors.
  [[gnu::always_inline]] void give() const {
    each_wide<kLanes<Real>>(
        from_, to_, [&](std::size_t column, std::size_t count) __attribute__((always_inline)) {
          for (std::size_t j = 0; j < kCount; ++j) {
            std::byte* const at = element<Real>(block_.right, k_ + j, column);
            Wide before;
            Elements::read(before, at, count);
            Elements::write(at, before + sums_[j][(column - from_) / kLanes<Real>], count);
          }
        });
  }

 private:
  const LowRankBlock& block_;
  const Elements elements_;
  const std::size_t k_, from_, to_;
  Wide sums_[kCount][kStrip / kLanes<Real>] = {};
};

// Adds left_k U of a tile of rows to right_k, for kCount vectors from number k on.
template <DType kType, std::size_t kCount>
[[gnu::always_inline]] inline void project_rows_back(const LowRankBlock& block, std::size_t k,
                                                     std::size_t row, std::size_t end) {
  for (std::size_t from = 0; from < block.columns; from += kStrip) {
    StripSums<kType, kCount> sums(block, k, from, std::min(from + kStrip, block.columns));
    std::size_t next = row;
    for (; next + kTogether <= end; next += kTogether) sums.template add<kTogether>(next);
    for (; next < end; ++next) sums.template add<1>(next);
    sums.give();
  }
}

// Calls step.operator()<n>(k) for kTogether vectors from number k on, and for those that are left.
template <typename Step>
[[gnu::always_inline]] inline void each_few(std::size_t count, Step step) {
  std::size_t k = 0;
  for (; k + kTogether <= count; k += kTogether) step.template operator()<kTogether>(k);
  const std::size_t rest = count - k;
  if (rest == 3) step.template operator()<3>(k);
  if (rest == 2) step.template operator()<2>(k);
  if (rest == 1) step.template operator()<1>(k);
}

template <typename Step>
[[gnu::always_inline]] inline void each_tile(std::size_t columns, Step step) {
  for (std::size_t from = 0; from < columns; from += kTile) step(from, std::min(from + kTile, columns));
}

template <DType kType>
[[gnu::always_inline]] inline void project_loop(const LowRankBlock& block) {
  each_tile(
      block.columns, [&](std::size_t from, std::size_t to) __attribute__((always_inline)) {
        each_few(
            block.left.count, [&]<std::size_t kCount>(std::size_t k) __attribute__((always_inline)) {
              project_tile<kType, kCount>(block, k, from, to);
            });
      });
}

template <DType kType>
[[gnu::always_inline]] inline void project_back_loop(const LowRankBlock& block) {
  for (std::size_t row = 0; row < block.rows; row += kRowTile) {
    const std::size_t end = std::min(row + kRowTile, block.rows);
    each_few(
        block.right.count, [&]<std::size_t kCount>(std::size_t k) __attribute__((always_inline)) {
          project_rows_back<kType, kCount>(block, k, row, end);
        });
  }
}

template <DType kType>
[[gnu::always_inline]] inline void expand_loop(const LowRankBlock& block, double share) {
  using Elements = BlockElements<kType>;
  using Real = typename Elements::Real;
  using Wide = typename Elements::Wide;
  const Elements elements(block);
  const auto part = static_cast<Real>(share);
  const auto expand_row = [&](std::size_t row, std::size_t from, std::size_t to)
      __attribute__((always_inline)) {
    each_wide<WideOf<Real>::kWidth>(
        from, to, [&](std::size_t column, std::size_t count) __attribute__((always_inline)) {
          Wide own, vector, sum{};
          for (std::size_t k = 0; k < block.left.count; ++k) {
            Elements::read(vector, element<Real>(block.right, k, column), count);
            sum += vector * load<Real>(element<Real>(block.left, k, row));
          }
          const std::size_t at = row * block.stride + column;
          if (block.residual != nullptr) {
            elements.read(own, at, count);
            elements.keep(at, own - sum * part, count);
          }
          elements.set_value(at, sum, count);
        });
  };
  each_tile(
      block.columns, [&](std::size_t from, std::size_t to) __attribute__((always_inline)) {
        for (std::size_t row = 0; row < block.rows; ++row) expand_row(row, from, to);
      });
}

}  // namespace roundelay::kernels
