// Conversions from or to an integer type. They are rare for gradients, so one kernel serves all of them and
// looks up the types at run time, once for a pack.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/plan.h"

namespace roundelay::kernels::cuda {

struct AnyTypes {
  DType to, from;
  int to_size, from_size;
};

// Values of any type: the bits of doubles or of 64-bit integers, whichever holds them exactly.
template <int kCount>
struct AnyValues {
  bool are_real;
  std::uint64_t bits[kCount];
};

// Returns whether scaled values of the type are doubles.
template <DType kFrom>
ROUNDELAY_DEVICE bool are_real(DType to, const Scaler& by) {
  if constexpr (kIsFloating<kFrom>) return true;
  if (kFrom == DType::kBool || by.how == Scaling::kNone) return false;
  return kFrom != DType::kInt64 || to != DType::kInt64 || !divides_exactly<std::int64_t>(by.scale);
}

template <DType kFrom>
ROUNDELAY_DEVICE double real_of(Stored<kFrom> from, const Scaler& by) {
  using Real = typename Element<kFrom>::Scaled;
  return static_cast<double>(by.apply(static_cast<Real>(number<kFrom>(from))));
}
template <>
ROUNDELAY_DEVICE double real_of<DType::kBool>(std::uint8_t from, const Scaler& /*by*/) {
  return from != 0 ? 1 : 0;
}

template <DType kFrom>
ROUNDELAY_DEVICE std::int64_t integer_of(Stored<kFrom> from, const Scaler& by) {
  if constexpr (kFrom == DType::kBool) return from != 0 ? 1 : 0;
  const auto value = static_cast<std::int64_t>(from);
  return kFrom == DType::kInt64 && by.how != Scaling::kNone ? value / by.scale.divisor : value;
}

template <DType kFrom, int kCount, bool kAligned>
ROUNDELAY_DEVICE AnyValues<kCount> load_values(const std::byte* from, DType to, const Scaler& by) {
  AnyValues<kCount> values;
  values.are_real = are_real<kFrom>(to, by);
  const auto pack = load_pack<Stored<kFrom>, kCount, kAligned>(from);
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) {
    values.bits[i] = values.are_real ? std::bit_cast<std::uint64_t>(real_of<kFrom>(pack.at[i], by))
                                     : static_cast<std::uint64_t>(integer_of<kFrom>(pack.at[i], by));
  }
  return values;
}

template <DType kTo, int kCount, bool kAligned>
ROUNDELAY_DEVICE void store_values(std::byte* to, const AnyValues<kCount>& values) {
  Pack<Stored<kTo>, kCount> pack;
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) {
    pack.at[i] = values.are_real ? convert<kTo>(std::bit_cast<double>(values.bits[i]))
                                 : convert<kTo>(static_cast<std::int64_t>(values.bits[i]));
  }
  store_pack<Stored<kTo>, kCount, kAligned>(to, pack);
}

// Converts packs of kCount elements. A pack of a type that is too wide for it does not occur.
template <int kCount, bool kAligned>
ROUNDELAY_DEVICE void convert_packs(Thread thread, std::byte* to, const std::byte* from,
                                    const AnyTypes& types, int packs, const Scaler& by) {
  ROUNDELAY_ROLLED
  for (int i = thread.index; i < packs; i += thread.count) {
    AnyValues<kCount> values{};
    with_type(types.from, [&]<DType kFrom>() {
      if constexpr (kCount * sizeof(Stored<kFrom>) <= kPackBytes)
        values = load_values<kFrom, kCount, kAligned>(from + i * kCount * types.from_size, types.to, by);
    });
    with_type(types.to, [&]<DType kTo>() {
      if constexpr (kCount * sizeof(Stored<kTo>) <= kPackBytes)
        store_values<kTo, kCount, kAligned>(to + i * kCount * types.to_size, values);
    });
  }
}

// Converts `count` elements. `width`: as CopyItem::width. Types of 8 bytes go one by one: neighbouring
// threads' elements are adjacent.
ROUNDELAY_DEVICE void copy_any(Thread thread, std::byte* to, const std::byte* from, const AnyTypes& types,
                               int count, int width, const Scaler& by) {
  constexpr int kPack = 4;
  if (width == kPackBytes && types.to_size <= 4 && types.from_size <= 4) {
    convert_packs<kPack, true>(thread, to, from, types, count / kPack, by);
    const int done = count / kPack * kPack;
    to += done * types.to_size;
    from += done * types.from_size;
    count -= done;
  }
  if (width != 1) {
    convert_packs<1, true>(thread, to, from, types, count, by);
  } else {
    convert_packs<1, false>(thread, to, from, types, count, by);
  }
}

}  // namespace roundelay::kernels::cuda
