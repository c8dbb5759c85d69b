#include "runtime/lane/operations/operations.h"

namespace roundelay::runtime {
namespace {

std::string check(const submit::Entry& entry, const Group&) { return needs_dimensions(entry); }

Status prepare(Batch& batch, DeviceBuffers& buffers) {
  const Piece& piece = batch.pieces.front();
  const std::size_t row = row_bytes(piece.shape(), piece.dtype());
  std::int64_t rows = 0;
  auto& call = new_call<collective::AllgatherCall>(batch);
  for (const std::int64_t extent : batch.extents) {
    rows += extent;
    call.receive_bytes.push_back(static_cast<std::size_t>(extent) * row);
  }
  const Result<std::byte*> output = buffers.result(piece, with_rows(piece.shape(), rows));
  if (!output.ok()) return output.status();
  call.stream = buffers.stream();
  call.input = piece.tensor().input;
  call.output = {*output, static_cast<std::size_t>(rows) * row};
  return {};
}

}  // namespace

const OperationSteps kAllgatherSteps = {check, prepare, nullptr, nullptr};

}  // namespace roundelay::runtime
