// An alltoall is two calls: members send each other, from CPU to CPU, their numbers of rows, and then the
// rows.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/lane/operations/operations.h"

namespace roundelay::runtime {
namespace {

std::string text_of(const std::vector<std::int64_t>& splits) {
  std::string text = "[";
  for (const std::int64_t rows : splits) text += (text.size() > 1 ? ", " : "") + std::to_string(rows);
  return text + "]";
}

std::string check(const submit::Entry& entry, const Group& group) {
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

Status prepare(Batch& batch, DeviceBuffers& buffers) {
  const Group& group = buffers.fabric().group();
  const auto members = static_cast<std::size_t>(group.size());
  batch.sent = batch.entries.front()->splits;
  batch.received.assign(members, 0);
  auto& call = new_call<collective::AlltoallCall>(batch);
  call.send_bytes.assign(members, sizeof(std::int64_t));
  call.receive_bytes = call.send_bytes;
  call.input = reinterpret_cast<const std::byte*>(batch.sent.data());
  call.output = std::as_writable_bytes(std::span(batch.received));
  return {};
}

Result<bool> next(Batch& batch, DeviceBuffers& buffers) {
  const Piece& piece = batch.pieces.front();
  auto& call = std::get<collective::AlltoallCall>(batch.call);
  if (batch.sent.empty()) return false;  // the second call is over
  const std::size_t row = row_bytes(piece.shape(), piece.dtype());
  for (std::size_t member = 0; member < batch.sent.size(); ++member) {
    call.send_bytes[member] = static_cast<std::size_t>(batch.sent[member]) * row;
    call.receive_bytes[member] = static_cast<std::size_t>(batch.received[member]) * row;
  }
  const std::int64_t rows = std::accumulate(batch.received.begin(), batch.received.end(), std::int64_t{0});
  const Result<std::byte*> output = buffers.result(piece, with_rows(piece.shape(), rows));
  if (!output.ok()) return output.status();
  batch.sent.clear();
  call.stream = buffers.stream();
  call.input = piece.tensor().input;
  call.output = {*output, static_cast<std::size_t>(rows) * row};
  return true;
}

Status finish(Batch& batch, DeviceBuffers&) {
  batch.entries.front()->results->set_received_splits(std::move(batch.received));
  return {};
}

}  // namespace

const OperationSteps kAlltoallSteps = {check, prepare, next, finish};

}  // namespace roundelay::runtime
