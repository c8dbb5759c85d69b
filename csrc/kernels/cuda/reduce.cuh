// Reduces one chunk (Reduction::chunk, not a chunk of kernels/chunks.h) with one block of threads. Tests
// compile it without CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/plan.h"
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

// How a kernel reduces. A thread loads packs of kAtOnce parts before it adds the first of them, kPacks of
// each part. `Kept` accumulates one element: Sum or Steps of sum.cuh.
template <DType kElement, typename KeptType, int kPartsAtOnce, int kPacksAtOnce, bool kScalesBefore>
struct ReduceForm {
  static constexpr DType kType = kElement;
  using Kept = KeptType;
  static constexpr int kAtOnce = kPartsAtOnce;
  static constexpr int kPacks = kPacksAtOnce;
  static constexpr bool kPrescales = kScalesBefore;
  // Elements of a pack. The narrowest types take 8 bytes, because their sums are wide.
  static constexpr int kPack = std::min(8, pack_elements(sizeof(Stored<kType>), 1));
};

// Reduces kPacks packs from element `first` on, and `stride` elements from each other.
template <typename Form, int kPack, int kPacks, bool kAligned>
ROUNDELAY_DEVICE void reduce_packs(const Reduction& work, std::uint64_t first, std::uint64_t stride) {
  using Element = Stored<Form::kType>;
#ifdef __CUDA_ARCH__
  typename Form::Kept kept[kPacks][kPack];
#else
  typename Form::Kept kept[kPacks][kPack] = {};  // a compiler for the CPU does not see that all are started
#endif
  int begin = 0;
  do {  // there is a part
    Pack<Element, kPack> pack[Form::kAtOnce][kPacks];
    ROUNDELAY_UNROLL
    for (int p = 0; p < Form::kAtOnce; ++p) {
      if (p > 0 && begin + p >= work.parts) break;
      ROUNDELAY_UNROLL
      for (int u = 0; u < kPacks; ++u) {
        const std::byte* const from = work.part[begin + p] + (first + stride * u) * sizeof(Element);
        pack[p][u] = load_pack<Element, kPack, kAligned>(from);
      }
    }
    ROUNDELAY_UNROLL
    for (int p = 0; p < Form::kAtOnce; ++p) {
      if (p > 0 && begin + p >= work.parts) break;
      ROUNDELAY_UNROLL
      for (int u = 0; u < kPacks; ++u) {
        if constexpr (Form::kPrescales) scale_alike<Form::kType>(pack[p][u], work.prescale);
        ROUNDELAY_UNROLL
        for (int e = 0; e < kPack; ++e) {
          if (p == 0 && begin == 0) {
            kept[u][e].start(pack[p][u].at[e]);
          } else {
            kept[u][e].add(pack[p][u].at[e], work.op);
          }
        }
      }
    }
    begin += Form::kAtOnce;
  } while (begin < work.parts);
  ROUNDELAY_UNROLL
  for (int u = 0; u < kPacks; ++u) {
    store_pack<Element, kPack, kAligned>(work.to + (first + stride * u) * sizeof(Element),
                                         Form::Kept::finish(kept[u], work.scale));
  }
}

// Reduces the packs in [begin, end), elements.
template <typename Form, int kPack, int kPacks, bool kAligned>
ROUNDELAY_DEVICE void reduce_range(Thread thread, const Reduction& work, std::uint64_t begin,
                                   std::uint64_t end) {
  const auto stride = static_cast<std::uint64_t>(thread.count * kPack);
  std::uint64_t first = begin + static_cast<std::uint64_t>(thread.index * kPack);
  if constexpr (kPacks > 1) {
    for (; first + (kPacks - 1) * stride < end; first += kPacks * stride)
      reduce_packs<Form, kPack, kPacks, kAligned>(work, first, stride);
  }
  ROUNDELAY_ROLLED
  for (; first < end; first += stride) reduce_packs<Form, kPack, 1, kAligned>(work, first, stride);
}

template <typename Form>
ROUNDELAY_DEVICE void reduce_chunk(Thread thread, const Reduction& work, std::uint64_t begin) {
  const std::uint64_t left = work.count - begin, count = left < work.chunk ? left : work.chunk;
  const std::uint64_t end = begin + count;
  if (work.width == kPackBytes) {
    const std::uint64_t tail = end - count % Form::kPack;
    reduce_range<Form, Form::kPack, Form::kPacks, true>(thread, work, begin, tail);
    begin = tail;
  }
  if (work.width != 1) {
    reduce_range<Form, 1, 1, true>(thread, work, begin, end);
  } else {
    reduce_range<Form, 1, 1, false>(thread, work, begin, end);
  }
}

// The forms of a type's reductions. Sums of floating types, which gradients use, read all parts at once if
// there are up to 8, and have a form without prescaling. The other reductions are rare: one form each.
template <DType kType>
struct ReduceForms {
  using OfSteps = ReduceForm<kType, Steps<kType>, 2, 1, true>;
  using OfIntegers = ReduceForm<kType, Sum<kType>, 2, 1, true>;
  using PrescaledSum = ReduceForm<kType, Sum<kType>, 4, 1, true>;
  using SumOf2 = ReduceForm<kType, Sum<kType>, 2, 2, false>;
  using SumOf4 = ReduceForm<kType, Sum<kType>, 4, 1, false>;
  using SumOf8 = ReduceForm<kType, Sum<kType>, 8, 1, false>;
};

// Calls a function with the form for this reduction as a template argument.
template <DType kType, typename Function>
decltype(auto) with_form(ReduceOp op, std::size_t parts, bool prescales, Function function) {
  using Forms = ReduceForms<kType>;
  if constexpr (kType != DType::kBool) {  // the sum of bools is "or"
    if (op == ReduceOp::kSum) {
      if constexpr (kIsFloating<kType>) {
        if (prescales) return function.template operator()<typename Forms::PrescaledSum>();
        if (parts <= 2) return function.template operator()<typename Forms::SumOf2>();
        if (parts <= 4) return function.template operator()<typename Forms::SumOf4>();
        return function.template operator()<typename Forms::SumOf8>();
      } else {
        return function.template operator()<typename Forms::OfIntegers>();
      }
    }
  }
  return function.template operator()<typename Forms::OfSteps>();
}

}  // namespace roundelay::kernels::cuda
