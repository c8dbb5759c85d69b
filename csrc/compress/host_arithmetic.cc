#include "compress/host_arithmetic.h"

#include <cstring>
#include <limits>
#include <string>

#include "kernels/kernels.h"

namespace roundelay::compress {
namespace {

Status check_floating(DType dtype) {
  if (is_floating(dtype)) return {};
  return Status::invalid("residuals and chunks are of floating types, not " + std::string(name_of(dtype)));
}

}  // namespace

Status HostArithmetic::clear(std::byte* at, std::size_t bytes) {
  if (bytes > 0) std::memset(at, 0, bytes);
  return {};
}

Status HostArithmetic::scale(std::byte* values, std::size_t count, DType dtype, Scale scale) {
  kernels::scale_copy(values, values, count, dtype, scale);
  return {};
}

Status HostArithmetic::keep(std::byte* residual, std::byte* values, std::size_t count, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::keep(residual, values, count, dtype);
  return {};
}

Status HostArithmetic::give_back(std::byte* values, std::byte* residual, std::size_t count, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::give_back(values, residual, count, dtype);
  return {};
}

Status HostArithmetic::accumulate(std::span<float> norms, const kernels::ResidualState& kept,
                                  std::byte* values, Chunking of, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  for (std::size_t i = 0; i < norms.size(); ++i) {
    norms[i] = kernels::accumulate(kernels::chunk_of(kept, of, i, dtype),
                                   values + i * of.chunk * size_of(dtype), of.size(i), dtype);
  }
  return {};
}

Status HostArithmetic::mark_overflow(std::byte* value, DType dtype, std::span<const float> norms) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::mark_overflow(value, dtype, norms.data(), norms.size());
  return {};
}

Status HostArithmetic::copy(std::span<const kernels::GpuCopy> items) {
  for (const kernels::GpuCopy& item : items)
    kernels::cast(item.to, item.to_type, item.from, item.from_type, item.count);
  return {};
}

Status HostArithmetic::norms(float* norms, const std::byte* from, Chunking of, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  for (std::size_t i = 0; i < of.chunks(); ++i) {
    norms[i] = kernels::norm(from + i * of.chunk * size_of(dtype), of.size(i), dtype);
  }
  return {};
}

Status HostArithmetic::select(std::span<std::uint32_t> indices, std::span<const float> norms) {
  if (indices.size() > norms.size() || norms.size() > std::numeric_limits<std::uint32_t>::max()) {
    return Status::invalid("cannot select " + std::to_string(indices.size()) + " of " +
                           std::to_string(norms.size()) + " norms");
  }
  kernels::select_largest(indices.data(), indices.size(), norms.data(), norms.size());
  return {};
}

Status HostArithmetic::number(std::span<std::uint32_t> indices, kernels::Progression numbers) {
  for (std::size_t j = 0; j < indices.size(); ++j) indices[j] = numbers.at(j);
  return {};
}

Status HostArithmetic::gather(std::byte* to, std::byte* residual, Chunking of,
                              std::span<const std::uint32_t> indices, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  const std::size_t size = size_of(dtype), kept_size = size_of(kernels::residual_type(dtype));
  for (const std::uint32_t index : indices) {
    const std::size_t count = of.size(index);
    if (count > 0) kernels::take_rounded(to, residual + index * of.chunk * kept_size, count, dtype);
    if (count < of.chunk) std::memset(to + count * size, 0, (of.chunk - count) * size);
    to += of.chunk * size;
  }
  return {};
}

Status HostArithmetic::scatter(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                               Chunking of, std::span<const std::uint32_t> indices) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(to_type));
  ROUNDELAY_RETURN_IF_ERROR(check_floating(from_type));
  for (const std::uint32_t index : indices) {
    const std::size_t count = of.size(index);
    if (count > 0) kernels::cast(to + index * of.chunk * size_of(to_type), to_type, from, from_type, count);
    from += of.chunk * size_of(from_type);
  }
  return {};
}

Status HostArithmetic::clear_chunks(std::byte* at, Chunking of, std::span<const std::uint32_t> indices,
                                    DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  const std::size_t size = size_of(dtype);
  for (const std::uint32_t index : indices) {
    const std::size_t bytes = of.size(index) * size;
    if (bytes > 0) std::memset(at + index * of.chunk * size, 0, bytes);
  }
  return {};
}

Status HostArithmetic::top_k(std::span<const float> values, const kernels::TopKRule& rule,
                             std::span<float> chosen, std::span<std::int64_t> indices,
                             std::byte* /*scratch*/) {
  kernels::top_k(values, rule, chosen, indices);
  return {};
}

std::size_t HostArithmetic::top_k_scratch(std::size_t /*count*/) const { return 0; }

Status HostArithmetic::take_pairs(const kernels::Pairs& pairs, const kernels::ResidualState& kept,
                                  std::span<const std::int64_t> indices) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(pairs.type));
  kernels::take_pairs(pairs, kept, indices);
  return {};
}

Status HostArithmetic::add_pairs(std::byte* sums, const kernels::Pairs& pairs, Scale prescale) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(pairs.type));
  if (kernels::add_pairs(sums, pairs, prescale)) return {};
  return Status::internal("a message has indices beyond the array");
}

Status HostArithmetic::project(const kernels::LowRankBlock& block, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::project(block, dtype);
  return {};
}

Status HostArithmetic::project_back(const kernels::LowRankBlock& block, DType dtype, std::byte* /*scratch*/) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::project_back(block, dtype);
  return {};
}

Status HostArithmetic::expand(const kernels::LowRankBlock& block, double share, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::expand(block, share, dtype);
  return {};
}

Status HostArithmetic::orthonormalise(const kernels::Vectors& vectors, DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::orthonormalise(vectors, dtype);
  return {};
}

Status HostArithmetic::renew(const kernels::Vectors& to, const kernels::Vectors& from, std::uint64_t seed,
                             DType dtype) {
  ROUNDELAY_RETURN_IF_ERROR(check_floating(dtype));
  kernels::renew(to, from, seed, dtype);
  return {};
}

}  // namespace roundelay::compress
