// Compiles the loops once for each instruction set. It uses target attributes and a table, not target_clones:
// their resolvers run before sanitizers are ready, and clang does not have them for templates.
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/adasum.h"
#include "kernels/cpu/chunk_loops.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/low_rank_loops.h"
#include "kernels/cpu/quantise_loops.h"
#include "kernels/cpu/select_loops.h"
#include "kernels/cpu/table.h"

#include "kernels/cpu/f16c.h"  // defines ROUNDELAY_X86 and the target attributes on x86
#include "kernels/cpu/select_x86.h"

namespace roundelay::kernels {
namespace {

// Defines a struct of entry points that are compiled with `attribute`.
#define ROUNDELAY_VARIANT(Name, attribute)                                                                  \
  struct Name {                                                                                             \
    template <DType kType, typename Op>                                                                     \
    attribute static void reduce(std::byte* accumulator, const std::byte* incoming, std::size_t count) {    \
      reduce_loop<kType, Op>(accumulator, incoming, count);                                                 \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void scale(std::byte* destination, const std::byte* source, std::size_t count,         \
                                Scale by) {                                                                 \
      scale_loop<kType>(destination, source, count, by);                                                    \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void sum_parts(std::byte* destination, Parts parts, std::size_t count, Scale prescale, \
                                    Scale by) {                                                             \
      sum_parts_loop<typename SumOf<kType>::Type>(destination, parts, count, prescale, by);                 \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static Dots dots(const std::byte* a, const std::byte* b, std::size_t count) {                 \
      return dots_loop<typename Element<kType>::Stored>(a, b, count);                                       \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void combine(std::byte* a, double factor_a, const std::byte* b, double factor_b,       \
                                  std::size_t count) {                                                      \
      combine_loop<typename Element<kType>::Stored>(a, factor_a, b, factor_b, count);                       \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void keep(std::byte* residual, std::byte* values, std::size_t count) {                 \
      keep_loop<kType>(residual, values, count);                                                            \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void give_back(std::byte* values, std::byte* residual, std::size_t count) {            \
      give_back_loop<kType>(values, residual, count);                                                       \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void take_rounded(std::byte* sent, std::byte* residual, std::size_t count) {           \
      take_loop<kType>(sent, residual, count);                                                              \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static float norm(const std::byte* values, std::size_t count) {                               \
      return norm_loop<kType>(values, count);                                                               \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static float accumulate(const ResidualState& kept, std::byte* values, std::size_t count) {    \
      return accumulate_any<kType>(kept, values, count, WidenElements<kType>{});                            \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void project(const LowRankBlock& block) {                                              \
      project_loop<kType>(block);                                                                           \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void project_back(const LowRankBlock& block) {                                         \
      project_back_loop<kType>(block);                                                                      \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void expand(const LowRankBlock& block, double share) {                                 \
      expand_loop<kType>(block, share);                                                                     \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void widen(std::byte* destination, const std::byte* source, std::size_t count) {       \
      map_loop<float, std::uint16_t>(destination, source, count, Element<kType>::widen);                    \
    }                                                                                                       \
    template <DType kType>                                                                                  \
    attribute static void narrow(std::byte* destination, const std::byte* source, std::size_t count) {      \
      map_loop<std::uint16_t, float>(destination, source, count, Element<kType>::narrow);                   \
    }                                                                                                       \
    attribute static std::size_t collect(const float* values, std::size_t count, MagnitudeRange range,      \
                                         float* to, std::uint32_t* positions) {                             \
      return collect_rest(values, 0, count, range, to, positions, 0);                                       \
    }                                                                                                       \
    attribute static void count(const float* values, std::size_t count,                                     \
                                std::span<const Magnitude> thresholds, std::uint64_t* counts) {             \
      count_loop(values, count, thresholds, counts);                                                        \
    }                                                                                                       \
    attribute static MagnitudeSum magnitude_sum(const float* values, std::size_t count) {                   \
      return magnitude_sum_loop(values, count);                                                             \
    }                                                                                                       \
    attribute static void quantise(std::byte* to, float* numbers, std::size_t count) {                      \
      quantise_loop(to, numbers, count);                                                                    \
    }                                                                                                       \
    attribute static void dequantise(float* numbers, const std::byte* from, std::size_t count) {            \
      dequantise_loop(numbers, from, count);                                                                \
    }                                                                                                       \
    attribute static void move_exactly(float* to, float* numbers, std::size_t count) {                      \
      move_exactly_loop(to, numbers, count);                                                                \
    }                                                                                                       \
  }

ROUNDELAY_VARIANT(Portable, );

template <typename Variant, DType kType>
constexpr void fill(Table& table) {
  auto& row = table.reduce[index_of(kType)];
  row[index_of(ReduceOp::kSum)] = &Variant::template reduce<kType, SumOp>;
  row[index_of(ReduceOp::kMin)] = &Variant::template reduce<kType, MinOp>;
  row[index_of(ReduceOp::kMax)] = &Variant::template reduce<kType, MaxOp>;
  row[index_of(ReduceOp::kProduct)] = &Variant::template reduce<kType, ProductOp>;
  table.scale[index_of(kType)] = &Variant::template scale<kType>;
  if constexpr (kType != DType::kBool) {
    table.sum_parts[index_of(kType)] = &Variant::template sum_parts<kType>;
  }
  if constexpr (kType == DType::kFloat64 || kType == DType::kFloat32) {
    table.dots[index_of(kType)] = &Variant::template dots<kType>;
    table.combine[index_of(kType)] = &Variant::template combine<kType>;
  }
}

template <typename Variant, DType kType>
constexpr void fill_floating(Table& table) {
  fill<Variant, kType>(table);
  table.keep[index_of(kType)] = &Variant::template keep<kType>;
  table.give_back[index_of(kType)] = &Variant::template give_back<kType>;
  table.take_rounded[index_of(kType)] = &Variant::template take_rounded<kType>;
  table.norm[index_of(kType)] = &Variant::template norm<kType>;
  table.accumulate[index_of(kType)] = &Variant::template accumulate<kType>;
  table.project[index_of(kType)] = &Variant::template project<kType>;
  table.project_back[index_of(kType)] = &Variant::template project_back<kType>;
  table.expand[index_of(kType)] = &Variant::template expand<kType>;
}

template <typename Variant>
constexpr Table make_table(std::string_view name) {
  Table table;
  table.name = name;
  fill_floating<Variant, DType::kFloat64>(table);
  fill_floating<Variant, DType::kFloat32>(table);
  fill_floating<Variant, DType::kFloat16>(table);
  fill_floating<Variant, DType::kBFloat16>(table);
  fill<Variant, DType::kInt64>(table);
  fill<Variant, DType::kInt32>(table);
  fill<Variant, DType::kInt16>(table);
  fill<Variant, DType::kInt8>(table);
  fill<Variant, DType::kUInt8>(table);
  fill<Variant, DType::kBool>(table);
  table.collect = &Variant::collect;
  table.count = &Variant::count;
  table.magnitude_sum = &Variant::magnitude_sum;
  table.quantise = &Variant::quantise;
  table.dequantise = &Variant::dequantise;
  table.move_exactly = &Variant::move_exactly;
  table.half_to_float = &Variant::template widen<DType::kFloat16>;
  table.float_to_half = &Variant::template narrow<DType::kFloat16>;
  table.bfloat_to_float = &Variant::template widen<DType::kBFloat16>;
  table.float_to_bfloat = &Variant::template narrow<DType::kBFloat16>;
  return table;
}

#ifdef ROUNDELAY_X86

ROUNDELAY_VARIANT(Avx2, ROUNDELAY_AVX2);
ROUNDELAY_VARIANT(Avx512, ROUNDELAY_AVX512);

template <typename Variant>
constexpr Table make_x86_table(std::string_view name, CollectFunction collect) {
  Table table = make_table<Variant>(name);
  table.collect = collect;
  auto& row = table.reduce[index_of(DType::kFloat16)];
  row[index_of(ReduceOp::kSum)] = &f16c::reduce<SumOp>;
  row[index_of(ReduceOp::kMin)] = &f16c::reduce<MinOp>;
  row[index_of(ReduceOp::kMax)] = &f16c::reduce<MaxOp>;
  row[index_of(ReduceOp::kProduct)] = &f16c::reduce<ProductOp>;
  table.scale[index_of(DType::kFloat16)] = &f16c::scale;
  table.sum_parts[index_of(DType::kFloat16)] = &f16c::sum_parts;
  table.take_rounded[index_of(DType::kFloat16)] = &f16c::take_rounded;
  table.accumulate[index_of(DType::kFloat16)] = &f16c::accumulate;
  table.half_to_float = &f16c::widen;
  table.float_to_half = &f16c::narrow;
  return table;
}

constexpr std::array<Table, 3> kTables = {make_table<Portable>("portable"),
                                          make_x86_table<Avx2>("AVX2", select_x86::collect_avx2),
                                          make_x86_table<Avx512>("AVX-512", select_x86::collect_avx512)};

std::size_t count_usable() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  if (!f16c || !__builtin_cpu_supports("avx2")) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? 3 : 2;
}

#else

constexpr std::array<Table, 1> kTables = {make_table<Portable>("portable")};
std::size_t count_usable() { return 1; }

#endif

}  // namespace

std::span<const Table> usable_tables() {
  static const std::size_t count = count_usable();
  return std::span(kTables).first(count);
}

}  // namespace roundelay::kernels
