#include "compress/top_k/shard.h"

#include <cstring>
#include <vector>

#include "kernels/chunks.h"
#include "kernels/kernels.h"
#include "kernels/top_k.h"

namespace roundelay::compress::top_k {
namespace {

using kernels::residual_type;

// Calls a function with a number of the residual's type.
template <typename Visit>
void with_type(DType residual, Visit visit) {
  if (residual == DType::kFloat64) {
    visit(double{});
  } else {
    visit(float{});
  }
}

template <typename T>
void take_from(const T* from, std::span<const std::int64_t> indices, T* to) {
  for (const std::int64_t index : indices) *to++ = from[index];
}

template <typename T>
void put_to(T* to, std::span<const std::int64_t> indices, const T* from) {
  for (const std::int64_t index : indices) to[index] = *from++;
}

template <typename T>
void clear_at(T* to, std::span<const std::int64_t> indices) {
  for (const std::int64_t index : indices) to[index] = 0;
}

template <typename T>
T* as(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}
template <typename T>
const T* as(const std::byte* memory) {
  return reinterpret_cast<const T*>(memory);
}

}  // namespace

kernels::Kept Shard::kept() const {
  std::byte* const residual = bucket_.state.data();
  const bool moves = options_.momentum.factor != 0;
  return {residual, moves ? residual + bucket_.state.size() / 2 : nullptr, options_.momentum};
}

// Dense elements do not go into the residual: they are zero there always.
void Shard::take_dense(std::byte* to) const {
  for (const Slice& slice : plan_.dense) {
    std::byte* const from = values() + slice.first * size_of(plan_.dtype);
    kernels::cast(to, plan_.wire, from, plan_.dtype, slice.count);
    std::memset(from, 0, slice.count * size_of(plan_.dtype));
    to += slice.count * size_of(plan_.wire);
  }
}

Result<Shard::Chosen> Shard::choose() const {
  const DType type = residual_type(plan_.dtype);
  const std::size_t chosen = plan_.chosen, count = plan_.shard.count;
  const Result<std::byte*> indices = stage_.scratch(chosen * sizeof(std::int64_t));
  if (!indices.ok()) return indices.status();
  const Result<std::byte*> values = stage_.scratch(chosen * size_of(type));
  if (!values.ok()) return values.status();
  Chosen found{{as<std::int64_t>(*indices), chosen}, *values};
  const float* candidates = as<float>(kept().residual);
  std::span<float> magnitudes(as<float>(*values), chosen);
  if (type == DType::kFloat64) {  // the order of fp32 is near enough; the values stay exact
    const Result<std::byte*> memory = stage_.scratch((count + chosen) * sizeof(float));
    if (!memory.ok()) return memory.status();
    kernels::cast(*memory, DType::kFloat32, kept().residual, type, count);
    candidates = as<float>(*memory);
    magnitudes = {as<float>(*memory) + count, chosen};
  }
  kernels::TopKRule rule = options_.rule;
  rule.seed += bucket_.run;
  kernels::top_k({candidates, count}, rule, magnitudes, found.indices);
  if (type == DType::kFloat64)
    take_from(as<double>(kept().residual), found.indices, as<double>(found.values));
  return found;
}

Status Shard::fill(std::byte* message) const {
  stage_.span("selection");
  const DType type = residual_type(plan_.dtype);
  std::byte* to = message + MessageLayout::kValuesAt;
  take_dense(to);
  to += plan_.dense_count * size_of(plan_.wire);
  const std::span<float> norm(as<float>(message), 1);
  const Chunking whole{plan_.shard.count, plan_.shard.count};
  ROUNDELAY_RETURN_IF_ERROR(stage_.math().accumulate(norm, kept(), values(), whole, plan_.dtype));
  const Result<Chosen> found = choose();
  if (!found.ok()) return found.status();
  kernels::take(to, found->values, plan_.chosen, plan_.wire);
  plan_.code.write(message + plan_.message.indices_at, found->indices);
  with_type(type, [&]<typename T>(T) {
    put_to(as<T>(kept().residual), found->indices, as<T>(found->values));  // what the rounding has lost
    if (kept().momentum != nullptr) clear_at(as<T>(kept().momentum), found->indices);
  });
  return {};
}

// Adds the values of one message, which have the residual's type.
void Shard::add(std::byte* sums, std::span<const std::uint32_t> indices, const std::byte* values) const {
  with_type(residual_type(plan_.dtype), [&]<typename T>(T) {
    T* const to = as<T>(sums);
    const T* from = as<T>(values);
    for (const Slice& slice : plan_.dense) {
      for (std::size_t i = 0; i < slice.count; ++i) to[slice.first + i] += *from++;
    }
    for (const std::uint32_t index : indices) to[index] += *from++;
  });
}

Status Shard::sum(const std::byte* messages, std::size_t count, Scale scale) const {
  stage_.span("sum");
  const DType type = residual_type(plan_.dtype);
  const std::size_t elements = plan_.shard.count, each = plan_.dense_count + plan_.chosen;
  std::byte* sums = values();  // zeros, since fill()
  if (type != plan_.dtype) {
    const Result<std::byte*> memory = stage_.scratch(elements * size_of(type));
    if (!memory.ok()) return memory.status();
    sums = *memory;
    std::memset(sums, 0, elements * size_of(type));
  }
  const Result<std::byte*> wide = stage_.scratch(each * size_of(type));
  if (!wide.ok()) return wide.status();
  const Result<std::byte*> memory = stage_.scratch(plan_.chosen * sizeof(std::uint32_t));
  if (!memory.ok()) return memory.status();
  const std::span indices(as<std::uint32_t>(*memory), plan_.chosen);
  std::vector<float> norms;
  for (std::size_t node = 0; node < count; ++node) {
    const std::byte* const message = messages + node * plan_.message.bytes;
    norms.push_back(*as<float>(message));
    kernels::cast(*wide, type, message + MessageLayout::kValuesAt, plan_.wire, each);
    kernels::scale_copy(*wide, *wide, each, type, bucket_.reduction.prescale);
    if (!plan_.code.read(message + plan_.message.indices_at, indices))
      return Status::internal("technique 'topk' got indices beyond the shard from another node");
    add(sums, indices, *wide);
  }
  if (!scale.identity()) kernels::scale_copy(sums, sums, elements, type, scale);
  if (type != plan_.dtype) kernels::cast(values(), plan_.dtype, sums, type, elements);
  if (plan_.lossy == 0) return {};
  std::byte* const seen = values() + plan_.first * size_of(plan_.dtype);
  return stage_.math().mark_overflow(seen, plan_.dtype, norms);
}

}  // namespace roundelay::compress::top_k
