// Messages of pairs (kernels/pairs.h), for one block of threads. Each thread has some pairs. Tests compile it
// without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cuda/chunks.cuh"
#include "kernels/pairs.h"

namespace roundelay::kernels::cuda {

// A launch that moves elements of a residual into a message.
struct TakePairsWork {
  Pairs pairs;
  ResidualState kept;
  const std::int64_t* indices;

  // Returns the number of threads' turns: each one has a pair, and the end of a block.
  [[nodiscard]] constexpr std::uint64_t turns() const {
    return pairs.form.count < pairs.form.blocks() ? pairs.form.blocks() : pairs.form.count;
  }
};

// Returns the number of indices below `bound`.
ROUNDELAY_DEVICE std::uint64_t indices_below(const std::int64_t* indices, std::uint64_t count,
                                             std::uint64_t bound) {
  std::uint64_t begin = 0;
  while (begin < count) {
    const std::uint64_t middle = begin + (count - begin) / 2;
    if (static_cast<std::uint64_t>(indices[middle]) < bound) {
      begin = middle + 1;
    } else {
      count = middle;
    }
  }
  return begin;
}

template <DType kType>
ROUNDELAY_DEVICE void take_pair(const TakePairsWork& work, std::uint64_t i) {
  using Real = ResidualOf<kType>;
  const Pairs& pairs = work.pairs;
  if (i < pairs.form.blocks()) {
    const std::uint64_t end = (i + 1) * IndexForm::kBlock;
    pairs.words[i] = static_cast<std::uint32_t>(indices_below(work.indices, pairs.form.count, end));
  }
  if (i >= pairs.form.count) return;
  const auto index = static_cast<std::uint64_t>(work.indices[i]);
  move_one<Take<kType>>(pairs.values + i * sizeof(Stored<kType>), work.kept.residual + index * sizeof(Real));
  if (work.kept.momentum != nullptr) store_one<true>(work.kept.momentum + index * sizeof(Real), Real{});
  if (pairs.form.is_short) {
    pairs.narrow[i] = static_cast<std::uint16_t>(index % IndexForm::kBlock);
  } else {
    pairs.words[i] = static_cast<std::uint32_t>(index);
  }
}

// A launch that adds a message to sums. No index comes twice, so no two threads have the same sum.
struct AddPairsWork {
  std::byte* sums;
  Pairs pairs;
  Scaler prescale;
};

// Returns the index of pair `i`; one beyond the array if the blocks have fewer pairs.
ROUNDELAY_DEVICE std::uint64_t index_of_pair(const Pairs& pairs, std::uint64_t i) {
  if (!pairs.form.is_short) return pairs.words[i];
  std::uint64_t block = 0, after = pairs.form.blocks();
  while (block < after) {  // find the first block that ends after the pair
    const std::uint64_t middle = block + (after - block) / 2;
    if (pairs.words[middle] <= i) {
      block = middle + 1;
    } else {
      after = middle;
    }
  }
  return block * IndexForm::kBlock + pairs.narrow[i];
}

template <DType kType>
ROUNDELAY_DEVICE void add_pair(const AddPairsWork& work, std::uint64_t i) {
  using Real = ResidualOf<kType>;
  const Pairs& pairs = work.pairs;
  const std::uint64_t index = index_of_pair(pairs, i);
  if (index >= pairs.form.elements) {  // the host does not wait, so it cannot hear of it otherwise
    *pairs.overflow = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  const auto stored = load_one<true, Stored<kType>>(pairs.values + i * sizeof(Stored<kType>));
  std::byte* const sum = work.sums + index * sizeof(Real);
  const Real value = work.prescale.apply(static_cast<Real>(number<kType>(stored)));
  store_one<true>(sum, same_nan(load_one<true, Real>(sum) + value));
}

template <DType kType>
ROUNDELAY_DEVICE void take_pairs_block(Thread thread, const TakePairsWork& work, std::uint64_t block) {
  for_elements(thread, block, work.turns(), [&](std::uint64_t i) { take_pair<kType>(work, i); });
}

template <DType kType>
ROUNDELAY_DEVICE void add_pairs_block(Thread thread, const AddPairsWork& work, std::uint64_t block) {
  for_elements(thread, block, work.pairs.form.count, [&](std::uint64_t i) { add_pair<kType>(work, i); });
}

}  // namespace roundelay::kernels::cuda
