// Reduces one chunk (Reduction::chunk, not a chunk of kernels/chunks.h) with one block of threads. Tests
// compile it without CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/sum.cuh"

namespace roundelay::kernels::cuda {

inline constexpr std::size_t kMostParts = 256;

// One launch: to = scale(op over all parts of prescale(part)), as kernels::reduce_parts().
struct Reduction {
  std::byte* to;
  std::uint64_t count;  // elements
  std::uint64_t chunk;  // elements of a block of threads
  Scaler prescale, scale;
  std::int32_t parts;
  ReduceOp op;
  std::uint8_t width;  // the access that all addresses allow, as CopyItem::width
  const std::byte* part[kMostParts];
};

// Packs that a thread loads at once: more for the reductions that gradients use. `Kept` accumulates one
// element: Sum or Steps of sum.cuh.
template <DType kType, typename Kept>
inline constexpr int kReduceUnroll = kIsFloating<kType>&& std::is_same_v<Kept, Sum<kType>> ? kUnroll : 1;
// Elements of a pack. The narrowest types take 8 bytes, because their sums are wide.
template <DType kType>
inline constexpr int kReducePack = std::min(8, pack_elements(sizeof(Stored<kType>), 1));
template <DType kType, typename Kept>
inline constexpr int kReduceElements = kReducePack<kType>* kReduceUnroll<kType, Kept>;

// Reduces a complete chunk at `begin` by packs. All addresses must be aligned.
template <DType kType, typename Kept>
ROUNDELAY_DEVICE void reduce_packs(Thread thread, const Reduction& work, std::uint64_t begin) {
  constexpr int kPack = kReducePack<kType>;
  constexpr int kPacks = kReduceUnroll<kType, Kept>;
  using Element = Stored<kType>;
  Kept kept[kPacks][kPack];
  const std::uint64_t first = begin + static_cast<std::uint64_t>(thread.index * kPack);
  const auto stride = static_cast<std::uint64_t>(thread.count * kPack);
  ROUNDELAY_ROLLED
  for (int p = 0; p < work.parts; ++p) {
    Pack<Element, kPack> pack[kPacks];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kPacks; ++u)
      pack[u] = load_pack<Element, kPack>(work.part[p] + (first + stride * u) * sizeof(Element));
    ROUNDELAY_UNROLL
    for (int i = 0; i < kPacks * kPack; ++i) {
      Kept& one = kept[i / kPack][i % kPack];
      const Element value = pack[i / kPack].at[i % kPack];
      if (p == 0) {
        one.start(value, work.op, work.prescale);
      } else {
        one.add(value, work.op, work.prescale);
      }
    }
  }
  ROUNDELAY_UNROLL
  for (int u = 0; u < kPacks; ++u) {
    Pack<Element, kPack> pack;
    ROUNDELAY_UNROLL
    for (int e = 0; e < kPack; ++e) pack.at[e] = kept[u][e].finish(work.scale);
    store_pack(work.to + (first + stride * u) * sizeof(Element), pack);
  }
}

template <DType kType, typename Kept, bool kAligned>
ROUNDELAY_DEVICE void reduce_singly(Thread thread, const Reduction& work, std::uint64_t begin,
                                    std::uint64_t end) {
  using Element = Stored<kType>;
  ROUNDELAY_ROLLED
  for (std::uint64_t i = begin + thread.index; i < end; i += thread.count) {
    Kept kept;
    kept.start(load_one<kAligned, Element>(work.part[0] + i * sizeof(Element)), work.op, work.prescale);
    ROUNDELAY_ROLLED
    for (int p = 1; p < work.parts; ++p)
      kept.add(load_one<kAligned, Element>(work.part[p] + i * sizeof(Element)), work.op, work.prescale);
    store_one<kAligned>(work.to + i * sizeof(Element), kept.finish(work.scale));
  }
}

template <DType kType, typename Kept>
ROUNDELAY_DEVICE void reduce_chunk(Thread thread, const Reduction& work, std::uint64_t begin) {
  const std::uint64_t left = work.count - begin;
  const std::uint64_t end = begin + (left < work.chunk ? left : work.chunk);
  if (work.width == kPackBytes && left >= work.chunk) {
    reduce_packs<kType, Kept>(thread, work, begin);
  } else if (work.width != 1) {
    reduce_singly<kType, Kept, true>(thread, work, begin, end);
  } else {
    reduce_singly<kType, Kept, false>(thread, work, begin, end);
  }
}

}  // namespace roundelay::kernels::cuda
