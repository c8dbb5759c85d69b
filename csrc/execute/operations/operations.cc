#include "execute/operations/operations.h"

#include <array>
#include <cmath>

namespace roundelay::execute {

const OperationSteps* steps_of(Operation operation) {
  static const std::array<const OperationSteps*, kOperationCount> kSteps = {
#define OPERATION(Name, ...) &k##Name##Steps,
#define AGREEMENT(Name, ...) nullptr,
#include "base/operations.def"
#undef OPERATION
#undef AGREEMENT
  };
  return kSteps[static_cast<std::size_t>(operation)];
}

namespace {

// Returns why the operation cannot take its technique. Empty: it can, or it has none.
std::string wrong_technique(const submit::Entry& entry) {
  const wire::Request& request = entry.request;
  if (request.technique.empty() && entry.technique == nullptr) return {};
  if (request.technique.empty() || entry.technique == nullptr)
    return "the request and the bucket differ about the technique";
  if (request.operation != Operation::kAllreduce || !request.others.empty() || request.region.key == 0)
    return "a technique takes an allreduce of one bucket in a gradient pool, nothing else";
  if (request.reduce_op != ReduceOp::kSum && request.reduce_op != ReduceOp::kAverage)
    return "a technique needs op=Sum or op=Average";
  if (!is_floating(request.dtype))
    return "a technique needs floating-point gradients, not " + std::string(name_of(request.dtype));
  return {};
}

}  // namespace

std::string wrong_with(const submit::Entry& entry, const Group& group) {
  if (entry.request.operation == Operation::kAgreement) return wrong_with_agreement(entry, group);
  const OperationSteps* steps = steps_of(entry.request.operation);
  if (steps == nullptr) return {};
  const std::size_t described = 1 + entry.request.others.size();
  if (traits_of(entry.request.operation).has_tensors && entry.parts.size() != described) {
    return "has " + std::to_string(entry.parts.size()) + " tensors, but describes " +
           std::to_string(described);
  }
  std::string wrong = wrong_technique(entry);
  return wrong.empty() ? steps->check(entry, group) : wrong;
}

std::size_t row_bytes(const std::vector<std::int64_t>& shape, DType dtype) {
  std::size_t bytes = size_of(dtype);
  for (std::size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<std::size_t>(shape[i]);
  return bytes;
}

std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows) {
  shape.front() = rows;
  return shape;
}

Result<ByteSpan> memory_for_rows(DeviceBuffers& buffers, const BatchTensor& tensor, std::int64_t rows) {
  const Result<std::byte*> memory = buffers.result(tensor, with_rows(tensor.shape(), rows));
  if (!memory.ok()) return memory.status();
  return ByteSpan(*memory, static_cast<std::size_t>(rows) * row_bytes(tensor.shape(), tensor.dtype()));
}

std::string needs_dimensions(const submit::Entry& entry) {
  std::string text = "needs a tensor with at least one dimension; use tensor.reshape(1)";
  if (entry.request.shape.empty()) return text;
  for (std::size_t i = 0; i < entry.request.others.size(); ++i) {
    if (entry.request.others[i].shape.empty()) return "tensor " + std::to_string(i + 1) + ": " + text;
  }
  return {};
}

std::string needs_finite_factors(const wire::Request& request) {
  if (std::isfinite(request.prescale.factor) && std::isfinite(request.postscale.factor)) return {};
  return "prescale_factor and postscale_factor must be finite";
}

std::string needs_sums(const wire::Request& request) {
  return each_dtype(request, [](DType dtype) {
    return can_reduce(dtype) ? std::string() : std::string(name_of(dtype)) + " is never added up";
  });
}

collective::Buffer buffer_of(const wire::Request& request, const submit::Part& part) {
  if (!part.region) return {part.output, 0, part.bytes()};
  return {part.region->own.data(), request.region.offset, part.bytes(), part.region.get()};
}

void set_reduction(collective::Reduction& call, const wire::Request& request, int members) {
  const bool average = request.reduce_op == ReduceOp::kAverage;
  call.reduce_op = average ? ReduceOp::kSum : request.reduce_op;
  call.prescale = request.prescale;
  call.scale = average ? average_of(request.prescale, request.postscale, members) : request.postscale;
}

}  // namespace roundelay::execute
