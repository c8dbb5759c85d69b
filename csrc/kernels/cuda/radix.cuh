// The exact selection of top_k() (kernels/top_k.h), by blocks of threads. Tests compile it without CUDA.
//
// A magnitude has three digits, of 11, 10 and 10 bits. A histogram of a digit tells which bin holds the k-th
// magnitude: the edge. Values beyond it are selected, those below are not. The launches, in one stream:
//   clear     sets the histograms to zero
//   count     reads all values: the histogram of the first digit
//   compact   reads all values: lists what reaches the edge, and counts the edge's second digits
//   refine    reads the lists: counts the new edge's last digits
//   cut       reads the lists: what each share has above the cut, which is exact now, and at it
//   ranks     adds these counts up (tiles.cuh)
//   write     reads the lists, and writes the selected values in their order
// Each launch finds the edge of the histogram before it itself, in all blocks. A share whose list has no room
// for what reaches the edge is read as a whole instead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/atomics.cuh"
#include "kernels/cuda/tiles.cuh"

namespace roundelay::kernels::cuda {

struct Digit {
  int shift, bits;
  [[nodiscard]] constexpr int bins() const { return 1 << bits; }
  [[nodiscard]] constexpr int of(Magnitude magnitude) const { return magnitude >> shift & (bins() - 1); }
};
inline constexpr int kDigits = 3;
inline constexpr int kMostBins = 1 << 11;
ROUNDELAY_DEVICE constexpr Digit digit(int number) {
  return number == 0 ? Digit{20, 11} : number == 1 ? Digit{10, 10} : Digit{0, 10};
}

// Some digits of the k-th magnitude are known: those of `low`, whose other digits are zero. `take` of the
// values with these digits are selected.
struct Edge {
  Magnitude low;
  std::uint64_t take;
};

// What launches leave to the next ones.
struct RadixState {
  std::uint64_t counts[kDigits][kMostBins];
  Edge edges[kDigits];
  Cut cut;
};

struct RadixWork {
  RadixState* state;
  ShareLists lists;  // of the values from the edge on
  Ranks* ranks;
  std::uint64_t k;
};

inline constexpr int kRadixThreads = kTileThreads;

// All threads of a block find the edge of a digit in its histogram.
struct EdgeShared {
  Scan<std::uint64_t, kRadixThreads> counts;
  Edge edge;
  Cut cut;
};

template <int kDigit>
class EdgeSteps {
 public:
  static constexpr int kSteps = decltype(EdgeShared::counts)::kSteps + 2;

  ROUNDELAY_DEVICE EdgeSteps(const RadixWork& work, EdgeShared& shared, int thread)
      : work_(work), shared_(shared), thread_(thread) {}

  ROUNDELAY_DEVICE void run(int step) {
    if (step == 0) {
      std::uint64_t sum = 0;
      for (int i = 0; i < kEach; ++i) sum += work_.state->counts[kDigit][bin(i)];
      shared_.counts.set(thread_, sum);
    } else if (step < kSteps - 1) {
      shared_.counts.run(step - 1, thread_);
    } else {
      find();
    }
  }
  // Leaves the edge to later launches. One block does so, after all steps.
  ROUNDELAY_DEVICE void leave() const {
    if (thread_ != 0) return;
    work_.state->edges[kDigit] = shared_.edge;
    work_.state->cut = shared_.cut;
  }

 private:
  static constexpr int kEach = digit(kDigit).bins() / kRadixThreads;
  // Returns bin number i of this thread, from the highest bin on.
  [[nodiscard]] ROUNDELAY_DEVICE int bin(int i) const {
    return digit(kDigit).bins() - 1 - thread_ * kEach - i;
  }

  ROUNDELAY_DEVICE void find() {
    Edge before{0, work_.k};
    if constexpr (kDigit > 0) before = work_.state->edges[kDigit - 1];
    std::uint64_t above = shared_.counts.before(thread_);
    if (above >= before.take) return;  // the edge is in the bins of a thread before this one
    for (int i = 0; i < kEach; ++i) {
      const std::uint64_t count = work_.state->counts[kDigit][bin(i)];
      if (above + count >= before.take) {
        const Magnitude low = before.low | bin(i) << digit(kDigit).shift;
        shared_.edge = {low, before.take - above};
        // Before the last digit is known: what reaches the edge is above the cut, and no band is left.
        const bool exact = kDigit == kDigits - 1;
        shared_.cut = exact ? Cut{low + 1, low, 0, shared_.edge.take} : Cut{low, low, 0, 0};
        return;
      }
      above += count;
    }
  }

  const RadixWork& work_;
  EdgeShared& shared_;
  const int thread_;
};

// A histogram of the magnitudes that a block sees.
struct Bins {
  std::uint32_t of[kMostBins];

  template <int kDigit>
  ROUNDELAY_DEVICE void clear(int thread) {
    for (int i = thread; i < digit(kDigit).bins(); i += kRadixThreads) of[i] = 0;
  }
  template <int kDigit>
  ROUNDELAY_DEVICE void count(Magnitude magnitude) {
    BlockCounter{}(of[digit(kDigit).of(magnitude)]);
  }
  template <int kDigit>
  ROUNDELAY_DEVICE void add_to(RadixState& state, int thread) const {
    for (int i = thread; i < digit(kDigit).bins(); i += kRadixThreads) {
      if (of[i] != 0) add_shared(state.counts[kDigit][i], of[i]);
    }
  }
};

ROUNDELAY_DEVICE void clear_counts(const RadixWork& work, Thread thread) {
  std::uint64_t* const counts = &work.state->counts[0][0];
  for (int i = thread.index; i < kDigits * kMostBins; i += thread.count) counts[i] = 0;
}

// The launches' blocks, one for each share. All threads run step 0, then all run step 1, and so on.
class CountSteps {
 public:
  using Shared = Bins;
  static constexpr int kSteps = 3;

  ROUNDELAY_DEVICE CountSteps(const RadixWork& work, Shared& shared, std::uint64_t share, int thread)
      : work_(work), bins_(shared), share_(share), thread_(thread) {}
  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t steps() const { return kSteps; }

  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    if (step == 0) bins_.clear<0>(thread_);
    if (step == 1) count();
    if (step == 2) bins_.add_to<0>(*work_.state, thread_);
  }

 private:
  static constexpr int kPack = 4, kPacks = kTileEach / kPack;

  ROUNDELAY_DEVICE void count() {
    const ShareItems items = work_.lists.all_of(share_);
    const auto* const from = reinterpret_cast<const std::byte*>(items.values);
    const std::uint64_t tiles = holds_packs<float, kPack>(from) ? items.count / kTile : 0;
    ROUNDELAY_ROLLED
    for (std::uint64_t tile = 0; tile < tiles; ++tile) {
      Pack<float, kPack> pack[kPacks];
      ROUNDELAY_UNROLL
      for (int u = 0; u < kPacks; ++u)
        pack[u] = load_pack<float, kPack>(from + tile * kTile * sizeof(float) +
                                          (thread_ + u * kRadixThreads) * sizeof pack[0]);
      ROUNDELAY_UNROLL
      for (int u = 0; u < kPacks; ++u) {
        ROUNDELAY_UNROLL
        for (int e = 0; e < kPack; ++e) bins_.count<0>(magnitude_of(pack[u].at[e]));
      }
    }
    for (std::uint64_t i = tiles * kTile + static_cast<unsigned>(thread_); i < items.count;
         i += kRadixThreads)
      bins_.count<0>(magnitude_of(items.values[i]));
  }

  const RadixWork& work_;
  Bins& bins_;
  const std::uint64_t share_;
  const int thread_;
};

class CompactSteps {
 public:
  struct Shared {
    EdgeShared edge;
    TileShared tile;
    Bins bins;
  };

  ROUNDELAY_DEVICE CompactSteps(const RadixWork& work, Shared& shared, std::uint64_t share, int thread)
      : work_(work),
        shared_(shared),
        share_(share),
        thread_(thread),
        items_(work.lists.all_of(share)),
        edge_(work, shared.edge, thread) {}
  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t steps() const {
    return kBefore + TileSteps::tiles(items_) * kOfTile + 1;
  }

  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    if (step < kBefore) {
      if (step == 0) shared_.bins.clear<1>(thread_);
      edge_.run(static_cast<int>(step));
      return;
    }
    TileSteps of(items_, shared_.edge.cut, shared_.tile, thread_);
    const std::uint64_t tile = (step - kBefore) / kOfTile, of_tile = (step - kBefore) % kOfTile;
    if (step + 1 == steps()) {
      shared_.bins.add_to<1>(*work_.state, thread_);
      if (thread_ == 0) work_.lists.kept[share_] = static_cast<std::uint32_t>(of.all().above);
      if (share_ == 0) edge_.leave();
    } else if (of_tile < TileSteps::kSteps) {
      of.run(tile, static_cast<int>(of_tile), {});
    } else {
      keep(of, tile);
    }
  }

 private:
  static constexpr std::uint64_t kBefore = EdgeSteps<0>::kSteps, kOfTile = TileSteps::kSteps + 1;

  // Lists what reaches the edge.
  ROUNDELAY_DEVICE void keep(const TileSteps& of, std::uint64_t tile) {
    const Magnitude next = shared_.edge.edge.low + (1 << digit(0).shift);  // the next bin's
    const ShareLists& lists = work_.lists;
    std::uint64_t rank = of.before().above;
    of.for_each(tile, [&](std::uint64_t i, float value, bool above, bool /*band*/) {
      if (!above) return;
      if (rank < lists.room()) {
        lists.list[share_ * lists.room() + rank] = value;
        lists.places[share_ * lists.room() + rank] = static_cast<std::uint16_t>(i);
      }
      ++rank;
      const Magnitude magnitude = magnitude_of(value);
      if (magnitude < next) shared_.bins.count<1>(magnitude);
    });
  }

  const RadixWork& work_;
  Shared& shared_;
  const std::uint64_t share_;
  const int thread_;
  const ShareItems items_;
  EdgeSteps<0> edge_;
};

class RefineSteps {
 public:
  struct Shared {
    EdgeShared edge;
    Bins bins;
  };

  ROUNDELAY_DEVICE RefineSteps(const RadixWork& work, Shared& shared, std::uint64_t share, int thread)
      : work_(work), shared_(shared), share_(share), thread_(thread), edge_(work, shared.edge, thread) {}
  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t steps() const { return kBefore + 2; }

  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    if (step < kBefore) {
      if (step == 0) shared_.bins.clear<2>(thread_);
      edge_.run(static_cast<int>(step));
    } else if (step == kBefore) {
      count();
    } else {
      shared_.bins.add_to<2>(*work_.state, thread_);
      if (share_ == 0) edge_.leave();
    }
  }

 private:
  static constexpr std::uint64_t kBefore = EdgeSteps<1>::kSteps;

  ROUNDELAY_DEVICE void count() {
    const ShareItems items = work_.lists.items_of(share_);
    const Magnitude low = shared_.edge.edge.low, next = low + (1 << digit(1).shift);
    for (std::uint64_t i = static_cast<unsigned>(thread_); i < items.count; i += kRadixThreads) {
      const Magnitude magnitude = magnitude_of(items.values[i]);
      if (magnitude >= low && magnitude < next) shared_.bins.count<2>(magnitude);
    }
  }

  const RadixWork& work_;
  Shared& shared_;
  const std::uint64_t share_;
  const int thread_;
  EdgeSteps<1> edge_;
};

class CutSteps {
 public:
  struct Shared {
    EdgeShared edge;
    TileShared tile;
  };

  ROUNDELAY_DEVICE CutSteps(const RadixWork& work, Shared& shared, std::uint64_t share, int thread)
      : share_(share),
        edge_(work, shared.edge, thread),
        tally_(work.lists, shared.edge.cut, work.ranks, shared.tile, share, thread) {}
  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t steps() const { return kBefore + tally_.steps(); }

  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    if (step < kBefore) return edge_.run(static_cast<int>(step));
    tally_.run(step - kBefore);
    if (step == kBefore && share_ == 0) edge_.leave();
  }

 private:
  static constexpr std::uint64_t kBefore = EdgeSteps<2>::kSteps;

  const std::uint64_t share_;
  EdgeSteps<2> edge_;
  TallySteps tally_;
};

}  // namespace roundelay::kernels::cuda
