// An alltoall is two calls: members send each other, from CPU to CPU, their numbers of rows, and then the
// rows.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

std::string text_of(const std::vector<std::int64_t>& splits) {
  std::string text = "[";
  for (const std::int64_t rows : splits) text += (text.size() > 1 ? ", " : "") + std::to_string(rows);
  return text + "]";
}

std::string check_alltoall(const submit::Entry& entry, const Group& group) {
  std::string wrong = needs_dimensions(entry);
  if (!wrong.empty()) return wrong;
  const auto& splits = entry.splits;
  if (splits.size() != static_cast<std::size_t>(group.size())) {
    return "splits has " + std::to_string(splits.size()) + " entries, but the process set has " +
           std::to_string(group.size()) + " ranks";
  }
  if (std::any_of(splits.begin(), splits.end(), [](std::int64_t rows) { return rows < 0; })) {
    return "splits must not be negative: " + text_of(splits);
  }
  std::int64_t left = entry.request.shape.front();
  for (const std::int64_t rows : splits) {
    left = rows > left ? -1 : left - rows;  // never overflows
    if (left < 0) break;
  }
  if (left == 0) return {};
  return "splits " + text_of(splits) + " must add up to the tensor's first dimension, which is " +
         std::to_string(entry.request.shape.front());
}

using Rows = std::vector<std::int64_t>;  // a number for each member

void exchange_counts(const Batch& batch, const Rows& sent, Rows& received, collective::Call& call) {
  auto& counts = new_call<collective::AlltoallCall>(call, batch);
  counts.send_bytes.assign(sent.size(), sizeof(std::int64_t));
  counts.receive_bytes = counts.send_bytes;
  counts.input = reinterpret_cast<const std::byte*>(sent.data());
  counts.output = std::as_writable_bytes(std::span(received));
}

// Makes the call of the counts that of the rows.
Status exchange_rows(DeviceBuffers& buffers, const BatchTensor& tensor, const Rows& sent,
                     const Rows& received, collective::AlltoallCall& call) {
  const std::size_t row = row_bytes(tensor.shape(), tensor.dtype());
  for (std::size_t member = 0; member < sent.size(); ++member) {
    call.send_bytes[member] = static_cast<std::size_t>(sent[member]) * row;
    call.receive_bytes[member] = static_cast<std::size_t>(received[member]) * row;
  }
  const std::int64_t rows = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  const Result<ByteSpan> output = memory_for_rows(buffers, tensor, rows);
  if (!output.ok()) return output.status();
  call.stream = buffers.stream();
  call.input = tensor.memory().input;
  call.output = *output;
  return {};
}

collective::Task run_alltoall(DeviceBuffers& buffers, Batch& batch) {
  // A medium may write to `received`, and read `sent`, after a fault: the frame keeps them.
  const Rows sent = batch.entries.front()->splits;
  Rows received(sent.size());
  collective::Call call;
  exchange_counts(batch, sent, received, call);
  co_await collective::Calling(buffers.host_fabric(), call);
  Status ready =
      exchange_rows(buffers, batch.tensors.front(), sent, received, std::get<collective::AlltoallCall>(call));
  if (!ready.ok()) co_return ready;
  co_await collective::Calling(buffers.fabric(), call);
  batch.entries.front()->results->set_received_splits(std::move(received));
  co_return Status();
}

}  // namespace

const OperationSteps kAlltoallSteps = {check_alltoall, run_alltoall};

}  // namespace roundelay::execute
