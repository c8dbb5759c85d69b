// Writes the values that top_k() selects (kernels/top_k.h), once the cut is known (threshold.cuh), by blocks
// of threads. Tests compile it without CUDA.
//
// A block has a tile of the values. The first launch counts what each tile has. The second one adds the
// counts up, so that each tile knows how many come before its own. The third one writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bisection.h"
#include "kernels/cuda/scan.cuh"

namespace roundelay::kernels::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileEach = 16;  // adjacent values of a thread
inline constexpr std::uint64_t kTile = std::uint64_t{kTileThreads} * kTileEach;

// Values above the band, and values of the band.
struct Ranks {
  std::uint64_t above, band;
};
ROUNDELAY_DEVICE Ranks operator+(const Ranks& a, const Ranks& b) {
  return {a.above + b.above, a.band + b.band};
}

struct TileWork {
  const float* values;
  std::uint64_t count;
  const Cut* cut;
  Ranks* ranks;  // one for each tile: its own counts; after the second launch those of all tiles before it
  float* chosen;
  std::int64_t* indices;

  [[nodiscard]] constexpr std::uint64_t tiles() const { return (count + kTile - 1) / kTile; }
};

// A tile and the counts of its threads. Both counts of a thread lie in one word.
struct TileShared {
  static constexpr std::uint32_t kAbove = 1, kBand = 1U << 16;
  static_assert(kTile < kBand);

  Scan<std::uint32_t, kTileThreads> counts;
  float values[kTile + kTileThreads];  // a gap after each thread's, so that they lie in different banks
  [[nodiscard]] ROUNDELAY_DEVICE static std::uint64_t place(std::uint64_t i) { return i + i / kTileEach; }
};

class TileSteps {
 public:
  static constexpr int kSteps = decltype(TileShared::counts)::kSteps + 3;

  ROUNDELAY_DEVICE TileSteps(const TileWork& work, TileShared& shared, std::uint64_t tile, int thread)
      : work_(work), shared_(shared), first_(tile * kTile), tile_(tile), thread_(thread) {}

  // All threads run step 0, then all run step 1, and so on. The last one is tally() or write().
  ROUNDELAY_DEVICE void run(int step) {
    if (step == 0) load();
    if (step == 1) count();
    if (step >= 2) shared_.counts.run(step - 2, thread_);
  }
  ROUNDELAY_DEVICE void tally() {
    const std::uint32_t total = shared_.counts.total();
    if (thread_ == 0) work_.ranks[tile_] = {total % TileShared::kBand, total / TileShared::kBand};
  }
  ROUNDELAY_DEVICE void write() {
    const std::uint32_t before = shared_.counts.before(thread_);
    const Ranks of_tile = work_.ranks[tile_];
    Ranks rank = of_tile + Ranks{before % TileShared::kBand, before / TileShared::kBand};
    const Cut cut = *work_.cut;
    for_each([&](std::uint64_t i, float value, bool above, bool band) {
      if (above || (band && rank.band >= cut.skip && rank.band - cut.skip < cut.take)) {
        const std::uint64_t at = rank.above + taken(cut, rank.band);
        work_.chosen[at] = value;
        work_.indices[at] = static_cast<std::int64_t>(i);
      }
      rank = rank + Ranks{above ? 1U : 0U, band ? 1U : 0U};
    });
  }

 private:
  // Returns how many of the band's first `band` values are selected.
  ROUNDELAY_DEVICE static std::uint64_t taken(const Cut& cut, std::uint64_t band) {
    if (band <= cut.skip) return 0;
    return band - cut.skip < cut.take ? band - cut.skip : cut.take;
  }

  ROUNDELAY_DEVICE void load() {
    for (std::uint64_t i = static_cast<unsigned>(thread_); i < kTile; i += kTileThreads) {
      if (first_ + i < work_.count) shared_.values[TileShared::place(i)] = work_.values[first_ + i];
    }
  }
  ROUNDELAY_DEVICE void count() {
    std::uint32_t count = 0;
    for_each([&](std::uint64_t, float, bool above, bool band) {
      count += (above ? TileShared::kAbove : 0) + (band ? TileShared::kBand : 0);
    });
    shared_.counts.set(thread_, count);
  }

  // Calls a function with each value of this thread, its index, and whether it is above the band or in it.
  template <typename Visit>
  ROUNDELAY_DEVICE void for_each(Visit visit) const {
    const std::uint64_t begin = static_cast<std::uint64_t>(thread_) * kTileEach;
    const Magnitude above = work_.cut->above, band = work_.cut->band;
    for (std::uint64_t i = begin; i < begin + kTileEach && first_ + i < work_.count; ++i) {
      const float value = shared_.values[TileShared::place(i)];
      const Magnitude magnitude = magnitude_of(value);
      visit(first_ + i, value, magnitude >= above, magnitude >= band && magnitude < above);
    }
  }

  const TileWork& work_;
  TileShared& shared_;
  const std::uint64_t first_, tile_;
  const int thread_;
};

// One block adds up the tiles' counts.
inline constexpr int kRanksThreads = 1024;
struct RanksWork {
  Ranks* ranks;
  std::uint64_t tiles;
};

class RanksSteps {
 public:
  using Shared = Scan<Ranks, kRanksThreads>;
  static constexpr int kSteps = Shared::kSteps + 2;

  ROUNDELAY_DEVICE RanksSteps(const RanksWork& work, Shared& shared, int thread)
      : work_(work), shared_(shared), thread_(thread) {}

  // All threads run step 0, then all run step 1, and so on.
  ROUNDELAY_DEVICE void run(int step) {
    if (step == 0) {
      Ranks sum{};
      for_each([&](Ranks& one) { sum = sum + one; });
      shared_.set(thread_, sum);
    } else if (step < kSteps - 1) {
      shared_.run(step - 1, thread_);
    } else {
      Ranks before = shared_.before(thread_);
      for_each([&](Ranks& one) {
        const Ranks own = one;
        one = before;
        before = before + own;
      });
    }
  }

 private:
  template <typename Visit>
  ROUNDELAY_DEVICE void for_each(Visit visit) const {
    const std::uint64_t each = (work_.tiles + kRanksThreads - 1) / kRanksThreads;
    const std::uint64_t begin = each * static_cast<unsigned>(thread_);
    for (std::uint64_t i = begin; i < begin + each && i < work_.tiles; ++i) visit(work_.ranks[i]);
  }

  const RanksWork& work_;
  Shared& shared_;
  const int thread_;
};

}  // namespace roundelay::kernels::cuda
