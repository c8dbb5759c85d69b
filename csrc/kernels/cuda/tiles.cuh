// Goes through values in their order, by blocks of threads, to write those that top_k() selects
// (kernels/top_k.h). Tests compile it without CUDA.
//
// A block has a share of the values, and takes it tile by tile. One launch counts what each share has. The
// second one adds the counts up, so that each share knows how many come before its own. The third one writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bisection.h"
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/scan.cuh"

namespace roundelay::kernels::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileEach = 16;  // adjacent values of a thread
inline constexpr std::uint64_t kTile = std::uint64_t{kTileThreads} * kTileEach;

// The division of `count` values into shares of `each`, which is a multiple of kTile.
struct Shares {
  // About as many blocks of 256 threads as today's GPUs hold at once.
  static constexpr std::uint64_t kWanted = 1024;
  static constexpr std::uint64_t kMostEach = std::uint64_t{1} << 16U;  // a place in a share has 16 bits

  explicit constexpr Shares(std::uint64_t values) : count(values) {
    const std::uint64_t tiles = (values + kTile * kWanted - 1) / (kTile * kWanted);
    each = tiles * kTile < kMostEach ? tiles * kTile : kMostEach;
    if (each == 0) each = kTile;
  }
  [[nodiscard]] constexpr std::uint64_t shares() const { return (count + each - 1) / each; }
  [[nodiscard]] constexpr std::uint64_t size(std::uint64_t share) const {
    const std::uint64_t left = count - share * each;
    return left < each ? left : each;
  }

  std::uint64_t count, each;
};

// Values above the band, and values of the band.
struct Ranks {
  std::uint64_t above, band;
};
ROUNDELAY_DEVICE Ranks operator+(const Ranks& a, const Ranks& b) {
  return {a.above + b.above, a.band + b.band};
}

// The values of a share that a block goes through: all of them, or some with their places in the share.
struct ShareItems {
  const float* values;
  const std::uint16_t* places;  // null: all
  std::uint64_t count;
};

// The values, and lists of those that still matter: kept[s] values of share s, in their order, and their
// places. A list has room for an eighth of its share. If there are more, the share is read as a whole.
struct ShareLists {
  const float* values;
  Shares shares;
  float* list = nullptr;
  std::uint16_t* places = nullptr;
  std::uint32_t* kept = nullptr;  // null: there are no lists

  [[nodiscard]] constexpr std::uint64_t room() const { return shares.each / 8; }
  [[nodiscard]] ROUNDELAY_DEVICE ShareItems all_of(std::uint64_t share) const {
    return {values + share * shares.each, nullptr, shares.size(share)};
  }
  [[nodiscard]] ROUNDELAY_DEVICE ShareItems items_of(std::uint64_t share) const {
    if (kept == nullptr || kept[share] > room()) return all_of(share);
    return {list + share * room(), places + share * room(), kept[share]};
  }
};

// A tile and the counts of its threads. Both counts of a thread lie in one word.
struct TileShared {
  static constexpr std::uint32_t kAbove = 1, kBand = 1U << 16;
  static_assert(kTile < kBand);

  Ranks before;  // of the tiles before this one
  Scan<std::uint32_t, kTileThreads> counts;
  float values[kTile + kTileThreads];  // a gap after each thread's, so that they lie in different banks
  [[nodiscard]] ROUNDELAY_DEVICE static std::uint64_t place(std::uint64_t i) { return i + i / kTileEach; }
  [[nodiscard]] ROUNDELAY_DEVICE Ranks total() const {
    return {counts.total() % kBand, counts.total() / kBand};
  }
};

// Counts a tile: its values above the band and in it, before each thread's.
class TileSteps {
 public:
  static constexpr int kSteps = decltype(TileShared::counts)::kSteps + 2;

  ROUNDELAY_DEVICE TileSteps(const ShareItems& items, const Cut& cut, TileShared& shared, int thread)
      : items_(items), cut_(cut), shared_(shared), thread_(thread) {}

  [[nodiscard]] ROUNDELAY_DEVICE static std::uint64_t tiles(const ShareItems& items) {
    return items.count <= kTile ? 1 : (items.count + kTile - 1) / kTile;
  }
  // All threads run step 0, then all run step 1, and so on. `before`: of all shares before this one.
  ROUNDELAY_DEVICE void run(std::uint64_t tile, int step, const Ranks& before) {
    if (step == 0) {
      if (thread_ == 0) shared_.before = tile == 0 ? before : shared_.before + shared_.total();
      load(tile);
    }
    if (step == 1) count(tile);
    if (step >= 2) shared_.counts.run(step - 2, thread_);
  }

  // Returns the counts before this thread's values.
  [[nodiscard]] ROUNDELAY_DEVICE Ranks before() const {
    const std::uint32_t of_tile = shared_.counts.before(thread_);
    return shared_.before + Ranks{of_tile % TileShared::kBand, of_tile / TileShared::kBand};
  }
  // Returns the counts of all tiles up to this one.
  [[nodiscard]] ROUNDELAY_DEVICE Ranks all() const { return shared_.before + shared_.total(); }

  // Calls a function with each value of this thread, its number among the items, and whether it is above the
  // band or in it.
  template <typename Visit>
  ROUNDELAY_DEVICE void for_each(std::uint64_t tile, Visit visit) const {
    const std::uint64_t first = tile * kTile, size = size_of_tile(tile);
    const std::uint64_t each = (size + kTileThreads - 1) / kTileThreads;
    const std::uint64_t begin = static_cast<unsigned>(thread_) * each;
    for (std::uint64_t i = begin; i < begin + each && i < size; ++i) {
      const float value = shared_.values[TileShared::place(i)];
      const Magnitude magnitude = magnitude_of(value);
      visit(first + i, value, magnitude >= cut_.above, magnitude >= cut_.band && magnitude < cut_.above);
    }
  }

 private:
  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t size_of_tile(std::uint64_t tile) const {
    const std::uint64_t left = items_.count - tile * kTile;
    return left < kTile ? left : kTile;
  }
  ROUNDELAY_DEVICE void load(std::uint64_t tile) {
    constexpr int kPack = 4;
    const float* const from = items_.values + tile * kTile;
    const std::uint64_t size = size_of_tile(tile);
    if (size == kTile && holds_packs<float, kPack>(reinterpret_cast<const std::byte*>(from))) {
      Pack<float, kPack> pack[kTileEach / kPack];
      ROUNDELAY_UNROLL
      for (int u = 0; u < kTileEach / kPack; ++u)
        pack[u] = load_pack<float, kPack>(
            reinterpret_cast<const std::byte*>(from + (thread_ + u * kTileThreads) * kPack));
      ROUNDELAY_UNROLL
      for (int u = 0; u < kTileEach / kPack; ++u) {
        ROUNDELAY_UNROLL
        for (int e = 0; e < kPack; ++e) {
          const auto at = static_cast<unsigned>((thread_ + u * kTileThreads) * kPack + e);
          shared_.values[TileShared::place(at)] = pack[u].at[e];
        }
      }
      return;
    }
    for (std::uint64_t i = static_cast<unsigned>(thread_); i < size; i += kTileThreads)
      shared_.values[TileShared::place(i)] = from[i];
  }
  ROUNDELAY_DEVICE void count(std::uint64_t tile) {
    std::uint32_t count = 0;
    for_each(tile, [&](std::uint64_t, float, bool above, bool band) {
      count += (above ? TileShared::kAbove : 0) + (band ? TileShared::kBand : 0);
    });
    shared_.counts.set(thread_, count);
  }

  const ShareItems items_;
  const Cut& cut_;
  TileShared& shared_;
  const int thread_;
};

// A block counts what its share has above the band and in it.
class TallySteps {
 public:
  ROUNDELAY_DEVICE TallySteps(const ShareLists& lists, const Cut& cut, Ranks* ranks, TileShared& shared,
                              std::uint64_t share, int thread)
      : items_(lists.items_of(share)), cut_(cut), of_share_(ranks[share]), shared_(shared), thread_(thread) {}

  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t steps() const {
    return TileSteps::tiles(items_) * TileSteps::kSteps + 1;
  }
  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    TileSteps tile(items_, cut_, shared_, thread_);
    if (step + 1 < steps()) {
      tile.run(step / TileSteps::kSteps, static_cast<int>(step % TileSteps::kSteps), {});
    } else if (thread_ == 0) {
      of_share_ = tile.all();
    }
  }

 private:
  const ShareItems items_;
  const Cut& cut_;
  Ranks& of_share_;
  TileShared& shared_;
  const int thread_;
};

// What is written, and where.
struct WriteWork {
  ShareLists lists;
  const Cut* cut;
  const Ranks* ranks;  // of all shares before this one
  float* chosen;
  std::int64_t* indices;
};

// A block writes what is selected of its share.
class WriteSteps {
 public:
  ROUNDELAY_DEVICE WriteSteps(const WriteWork& work, TileShared& shared, std::uint64_t share, int thread)
      : work_(work),
        items_(work.lists.items_of(share)),
        first_(share * work.lists.shares.each),
        before_(work.ranks[share]),
        shared_(shared),
        thread_(thread) {}

  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t steps() const { return TileSteps::tiles(items_) * kOfTile; }
  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    const std::uint64_t tile = step / kOfTile, of_tile = step % kOfTile;
    TileSteps steps(items_, *work_.cut, shared_, thread_);
    if (of_tile < TileSteps::kSteps) {
      steps.run(tile, static_cast<int>(of_tile), before_);
    } else {
      write(steps, tile);
    }
  }

 private:
  static constexpr std::uint64_t kOfTile = TileSteps::kSteps + 1;

  // Returns how many of the band's first `band` values are selected.
  [[nodiscard]] ROUNDELAY_DEVICE static std::uint64_t taken(const Cut& cut, std::uint64_t band) {
    if (band <= cut.skip) return 0;
    return band - cut.skip < cut.take ? band - cut.skip : cut.take;
  }
  ROUNDELAY_DEVICE void write(const TileSteps& steps, std::uint64_t tile) const {
    Ranks rank = steps.before();
    const Cut cut = *work_.cut;
    steps.for_each(tile, [&](std::uint64_t i, float value, bool above, bool band) {
      if (above || (band && rank.band >= cut.skip && rank.band - cut.skip < cut.take)) {
        const std::uint64_t at = rank.above + taken(cut, rank.band);
        const std::uint64_t place = items_.places == nullptr ? i : items_.places[i];
        work_.chosen[at] = value;
        work_.indices[at] = static_cast<std::int64_t>(first_ + place);
      }
      rank = rank + Ranks{above ? 1U : 0U, band ? 1U : 0U};
    });
  }

  const WriteWork& work_;
  const ShareItems items_;
  const std::uint64_t first_;
  const Ranks before_;
  TileShared& shared_;
  const int thread_;
};

// One block turns the counts of each share into those of all shares before it.
struct RanksWork {
  Ranks* ranks;
  std::uint64_t shares;
};

inline constexpr int kRanksThreads = 1024;

class RanksSteps {
 public:
  using Shared = Scan<Ranks, kRanksThreads>;

  ROUNDELAY_DEVICE RanksSteps(const RanksWork& work, Shared& shared, int thread)
      : work_(work), shared_(shared), thread_(thread) {}
  [[nodiscard]] ROUNDELAY_DEVICE static std::uint64_t steps() { return Shared::kSteps + 2; }

  // All threads run step 0, then all run step 1, and so on.
  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    if (step == 0) {
      Ranks sum{};
      for_each([&](Ranks& one) { sum = sum + one; });
      shared_.set(thread_, sum);
    } else if (step + 1 < steps()) {
      shared_.run(static_cast<int>(step) - 1, thread_);
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
    const std::uint64_t each = (work_.shares + kRanksThreads - 1) / kRanksThreads;
    const std::uint64_t begin = each * static_cast<unsigned>(thread_);
    for (std::uint64_t i = begin; i < begin + each && i < work_.shares; ++i) visit(work_.ranks[i]);
  }

  const RanksWork& work_;
  Shared& shared_;
  const int thread_;
};

}  // namespace roundelay::kernels::cuda
