#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

std::string check_allgather(const submit::Entry& entry, const Group&) { return needs_dimensions(entry); }

Status prepare_allgather(DeviceBuffers& buffers, const Batch& batch, collective::AllgatherCall& call) {
  const BatchTensor& tensor = batch.tensors.front();
  const std::size_t row = row_bytes(tensor.shape(), tensor.dtype());
  std::int64_t rows = 0;
  call.receive_bytes.reserve(batch.extents.size());
  for (const std::int64_t extent : batch.extents) {
    rows += extent;
    call.receive_bytes.push_back(static_cast<std::size_t>(extent) * row);
  }
  const Result<ByteSpan> output = memory_for_rows(buffers, tensor, rows);
  if (!output.ok()) return output.status();
  call.stream = buffers.stream();
  call.input = tensor.memory().input;
  call.output = *output;
  return {};
}

collective::Task run_allgather(DeviceBuffers& buffers, Batch& batch) {
  collective::Call call;
  Status ready = prepare_allgather(buffers, batch, new_call<collective::AllgatherCall>(call, batch));
  if (!ready.ok()) co_return ready;
  co_await collective::Calling(buffers.fabric(), call);
  co_return Status();
}

}  // namespace

const OperationSteps kAllgatherSteps = {check_allgather, run_allgather};

}  // namespace roundelay::execute
