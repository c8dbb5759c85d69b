#include "runtime/lane/operations/operations.h"

namespace roundelay::runtime {
namespace {

using collective::AllreduceCall;

std::string check(const submit::Entry& entry, const Group&) {
  const wire::Request& request = entry.request;
  const auto op = request.reduce_op;
  if (static_cast<int>(op) >= kReduceOpCount)
    return "unknown reduction " + std::to_string(static_cast<int>(op));
  std::string wrong = needs_finite_factors(request);
  if (!wrong.empty()) return wrong;
  return each_dtype(request, [&](DType dtype) -> std::string {
    if (op == ReduceOp::kAverage && dtype == DType::kBool) {
      return "Average of bool has no meaning; use op=Sum (any) or op=Min (all)";
    }
    if (op == ReduceOp::kAdasum && !is_floating(dtype)) {
      return "op=Adasum needs floating-point tensors, not " + std::string(name_of(dtype));
    }
    return {};
  });
}

collective::Buffer buffer_of(const wire::Request& request, const submit::Part& part) {
  if (!part.region) return {part.output, 0, part.bytes()};
  return {part.region->own.data(), request.region.offset, part.bytes(), part.region.get()};
}

// Lists the tensors for a fabric that reduces them where they lie.
void scatter(Batch& batch, AllreduceCall& call) {
  batch.scattered.reserve(batch.pieces.size());
  for (const Piece& piece : batch.pieces) {
    const submit::Part& part = piece.tensor();
    batch.scattered.add({part.input, part.output, part.bytes()});
  }
  call.scattered = &batch.scattered;
  call.buffer.bytes = batch.scattered.bytes();
}

Status prepare_in_place(Batch& batch, AllreduceCall& call, DeviceBuffers& buffers) {
  const submit::Part& part = batch.pieces.front().tensor();
  if (part.input != part.output) {
    ROUNDELAY_RETURN_IF_ERROR(buffers.copy(part.output, part.input, part.bytes()));
  }
  call.buffer = buffer_of(batch.request(), part);
  return {};
}

Status pack(Batch& batch, AllreduceCall& call, DeviceBuffers& buffers) {
  std::vector<std::size_t> sizes;
  sizes.reserve(batch.pieces.size());
  for (const Piece& piece : batch.pieces) sizes.push_back(piece.bytes());
  batch.layout = fuse::make_layout(sizes);
  const Result<std::byte*> buffer = buffers.fusion_buffer(batch.layout.bytes);
  if (!buffer.ok()) return buffer.status();
  std::vector<fuse::PackItem> items;
  items.reserve(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const submit::Part& part = batch.pieces[i].tensor();
    items.push_back({part.input, batch.layout.slots[i]});
  }
  batch.fusion = *buffer;
  call.buffer = {*buffer, 0, batch.layout.bytes};
  return buffers.pack(items, *buffer);
}

Status prepare(Batch& batch, DeviceBuffers& buffers) {
  auto& call = new_call<AllreduceCall>(batch);
  call.dtype = batch.pieces.front().dtype();
  call.stream = buffers.stream();
  set_reduction(call, batch.request(), buffers.fabric().group().size());
  const bool in_region = batch.pieces.front().tensor().region != nullptr;
  const bool scatters =
      buffers.fabric().capabilities().scattered && call.reduce_op != ReduceOp::kAdasum && !in_region;
  if (scatters) {
    scatter(batch, call);
    return {};
  }
  return batch.pieces.size() == 1 ? prepare_in_place(batch, call, buffers) : pack(batch, call, buffers);
}

Status finish(Batch& batch, DeviceBuffers& buffers) {
  if (batch.fusion == nullptr) return {};
  std::vector<fuse::UnpackItem> items;
  items.reserve(batch.pieces.size());
  for (std::size_t i = 0; i < batch.pieces.size(); ++i) {
    const submit::Part& part = batch.pieces[i].tensor();
    items.push_back({part.output, batch.layout.slots[i]});
  }
  return buffers.unpack(items, batch.fusion);
}

}  // namespace

const OperationSteps kAllreduceSteps = {check, prepare, nullptr, finish};

}  // namespace roundelay::runtime
