#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

std::string check_reducescatter(const submit::Entry& entry, const Group&) {
  const wire::Request& request = entry.request;
  const auto op = request.reduce_op;
  if (op != ReduceOp::kAverage && op != ReduceOp::kSum) {
    const std::string given = static_cast<int>(op) < kReduceOpCount ? std::string(name_of(op))
                                                                    : std::to_string(static_cast<int>(op));
    return "op must be Average or Sum, not " + given;
  }
  std::string wrong = needs_dimensions(entry);
  if (wrong.empty()) wrong = needs_finite_factors(request);
  if (wrong.empty()) wrong = needs_sums(request);
  if (!wrong.empty()) return wrong;
  return each_dtype(request, [op](DType dtype) -> std::string {
    return dtype == DType::kBool && op == ReduceOp::kAverage
               ? "Average of bool has no meaning; use op=Sum (any)"
               : "";
  });
}

// If the rows do not divide evenly, the first members get one row more.
Status prepare_reducescatter(DeviceBuffers& buffers, const Batch& batch,
                             collective::ReducescatterCall& call) {
  const Group& group = buffers.fabric().group();
  const BatchTensor& tensor = batch.tensors.front();
  const std::size_t row = row_bytes(tensor.shape(), tensor.dtype());
  const std::int64_t rows = tensor.shape().front();
  const auto rows_of = [&](int member) {
    return rows / group.size() + (member < rows % group.size() ? 1 : 0);
  };
  call.dtype = tensor.dtype();
  set_reduction(call, batch.request(), group.size());
  call.shard_bytes.reserve(group.ranks.size());
  for (int member = 0; member < group.size(); ++member) {
    call.shard_bytes.push_back(static_cast<std::size_t>(rows_of(member)) * row);
  }
  const Result<ByteSpan> output = memory_for_rows(buffers, tensor, rows_of(group.index));
  if (!output.ok()) return output.status();
  call.stream = buffers.stream();
  call.input = tensor.memory().input;
  call.output = *output;
  return {};
}

collective::Task run_reducescatter(DeviceBuffers& buffers, Batch& batch) {
  collective::Call call;
  Status ready = prepare_reducescatter(buffers, batch, new_call<collective::ReducescatterCall>(call, batch));
  if (!ready.ok()) co_return ready;
  co_await collective::Calling(buffers.fabric(), call);
  co_return Status();
}

}  // namespace

const OperationSteps kReducescatterSteps = {check_reducescatter, run_reducescatter};

}  // namespace roundelay::execute
