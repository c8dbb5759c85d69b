#include "compress/top_k/shard.h"

#include "compress/copies.h"

namespace roundelay::compress::top_k {
namespace {

// A GPU has a block of threads for so many elements.
constexpr std::size_t kAccumulated = 32768;

template <typename T>
T* as(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}

}  // namespace

kernels::ResidualState Shard::kept() const {
  std::byte* const residual = bucket_.state.data();
  const bool moves = options_.momentum.factor != 0;
  return {residual, moves ? residual + bucket_.state.size() / 2 : nullptr, options_.momentum};
}

// Returns memory for so many numbers of the residual's type.
Result<std::byte*> Shard::zeros(std::size_t count) const {
  const std::size_t bytes = count * size_of(type());
  Result<std::byte*> memory = workspace_.scratch(bytes);
  if (!memory.ok()) return memory;
  Status bad = workspace_.math().clear(*memory, bytes);
  if (!bad.ok()) return bad;
  return memory;
}

// Dense elements do not go into the residual: it is zero there always.
Status Shard::take_dense(std::byte* to) const {
  Copies copies(workspace_.math());
  for (const Slice& slice : plan_.dense) {
    const std::byte* const from = values() + slice.first * size_of(plan_.dtype);
    ROUNDELAY_RETURN_IF_ERROR(copies.add({to, from, slice.count, plan_.wire_type, plan_.dtype}));
    to += slice.count * size_of(plan_.wire_type);
  }
  ROUNDELAY_RETURN_IF_ERROR(copies.end());
  for (const Slice& slice : plan_.dense) {
    const std::byte* const zeros = kept().residual + slice.first * size_of(type());
    std::byte* const cleared = values() + slice.first * size_of(plan_.dtype);
    ROUNDELAY_RETURN_IF_ERROR(copies.add({cleared, zeros, slice.count, plan_.dtype, type()}));
  }
  return copies.end();
}

Status Shard::accumulate(float* overflow) const {
  Arithmetic& math = workspace_.math();
  const Chunking parts{plan_.shard.count, kAccumulated};
  const Result<std::byte*> memory = workspace_.scratch(parts.chunks() * sizeof(float));
  if (!memory.ok()) return memory.status();
  const std::span norms(as<float>(*memory), parts.chunks());
  auto* const mark = reinterpret_cast<std::byte*>(overflow);
  ROUNDELAY_RETURN_IF_ERROR(math.accumulate(norms, kept(), values(), parts, plan_.dtype));
  ROUNDELAY_RETURN_IF_ERROR(math.clear(mark, sizeof *overflow));
  return math.mark_overflow(mark, DType::kFloat32, norms);
}

Result<std::span<std::int64_t>> Shard::choose() const {
  Arithmetic& math = workspace_.math();
  const std::size_t chosen = plan_.chosen, count = plan_.shard.count;
  const Result<std::byte*> memory = workspace_.scratch(chosen * sizeof(std::int64_t));
  if (!memory.ok()) return memory.status();
  const Result<std::byte*> magnitudes = workspace_.scratch(chosen * sizeof(float));
  if (!magnitudes.ok()) return magnitudes.status();
  const Result<std::byte*> scratch = workspace_.scratch(math.top_k_scratch(count));
  if (!scratch.ok()) return scratch.status();
  std::byte* candidates = kept().residual;
  if (type() == DType::kFloat64) {  // the order of fp32 is near enough; the values stay exact
    const Result<std::byte*> narrow = workspace_.scratch(count * sizeof(float));
    if (!narrow.ok()) return narrow.status();
    const kernels::GpuCopy all{*narrow, candidates, count, DType::kFloat32, DType::kFloat64};
    Status bad = math.copy({&all, 1});
    if (!bad.ok()) return bad;
    candidates = *narrow;
  }
  kernels::TopKRule rule = options_.rule;
  rule.seed += bucket_.run;
  const std::span indices(as<std::int64_t>(*memory), chosen);
  Status bad =
      math.top_k({as<float>(candidates), count}, rule, {as<float>(*magnitudes), chosen}, indices, *scratch);
  if (!bad.ok()) return bad;
  return indices;
}

Status Shard::fill(std::byte* message) const {
  workspace_.span("selection");
  ROUNDELAY_RETURN_IF_ERROR(take_dense(MessageLayout::dense(message)));
  ROUNDELAY_RETURN_IF_ERROR(accumulate(MessageLayout::overflow(message)));
  const Result<std::span<std::int64_t>> indices = choose();
  if (!indices.ok()) return indices.status();
  kernels::ResidualState from = kept();
  if (!options_.masking) from.momentum = nullptr;  // it goes on
  return workspace_.math().take_pairs(plan_.message.pairs(message), from, *indices);
}

Result<Shard::Sums> Shard::begin_sums() const {
  Sums sums{values(), nullptr, nullptr};  // the values are zeros, since fill()
  if (type() != plan_.dtype) {
    const Result<std::byte*> shard = zeros(plan_.shard.count);
    if (!shard.ok()) return shard.status();
    sums.shard = *shard;
  }
  const Result<std::byte*> dense = zeros(plan_.dense_count);
  if (!dense.ok()) return dense.status();
  const Result<std::byte*> wide = workspace_.scratch(plan_.dense_count * size_of(type()));
  if (!wide.ok()) return wide.status();
  sums.dense = *dense;
  sums.wide = *wide;
  return sums;
}

Status Shard::add(std::byte* message, const Sums& sums) const {
  Arithmetic& math = workspace_.math();
  const Scale prescale = bucket_.reduction.prescale;
  if (plan_.dense_count > 0) {
    const kernels::GpuCopy widened{sums.wide, MessageLayout::dense(message), plan_.dense_count, type(),
                                   plan_.wire_type};
    ROUNDELAY_RETURN_IF_ERROR(math.copy({&widened, 1}));
    if (!prescale.identity())
      ROUNDELAY_RETURN_IF_ERROR(math.scale(sums.wide, plan_.dense_count, type(), prescale));
    ROUNDELAY_RETURN_IF_ERROR(math.keep(sums.dense, sums.wide, plan_.dense_count, type()));
  }
  return math.add_pairs(sums.shard, plan_.message.pairs(message), prescale);
}

Status Shard::put_dense(const Sums& sums) const {
  Copies copies(workspace_.math());
  const std::byte* from = sums.dense;
  for (const Slice& slice : plan_.dense) {
    std::byte* const to = sums.shard + slice.first * size_of(type());
    ROUNDELAY_RETURN_IF_ERROR(copies.add({to, from, slice.count, type(), type()}));
    from += slice.count * size_of(type());
  }
  return copies.end();
}

Status Shard::sum(std::byte* messages, std::size_t count, Scale scale) const {
  workspace_.span("sum");
  Arithmetic& math = workspace_.math();
  const Result<Sums> sums = begin_sums();
  if (!sums.ok()) return sums.status();
  const Result<std::byte*> memory = workspace_.scratch(count * sizeof(float));
  if (!memory.ok()) return memory.status();
  Copies marks(math);
  for (std::size_t node = 0; node < count; ++node) {
    std::byte* const message = messages + node * plan_.message.bytes();
    ROUNDELAY_RETURN_IF_ERROR(add(message, *sums));
    ROUNDELAY_RETURN_IF_ERROR(
        marks.add({*memory + node * sizeof(float), message, 1, DType::kFloat32, DType::kFloat32}));
  }
  ROUNDELAY_RETURN_IF_ERROR(marks.end());
  ROUNDELAY_RETURN_IF_ERROR(put_dense(*sums));
  const std::size_t elements = plan_.shard.count;
  if (!scale.identity()) ROUNDELAY_RETURN_IF_ERROR(math.scale(sums->shard, elements, type(), scale));
  if (type() != plan_.dtype) {
    const kernels::GpuCopy narrowed{values(), sums->shard, elements, plan_.dtype, type()};
    ROUNDELAY_RETURN_IF_ERROR(math.copy({&narrowed, 1}));
  }
  if (plan_.lossy == 0) return {};
  std::byte* const seen = values() + plan_.first * size_of(plan_.dtype);
  return math.mark_overflow(seen, plan_.dtype, {as<float>(*memory), count});
}

}  // namespace roundelay::compress::top_k
