#include <cmath>

#include "fuse/pack.h"
#include "kernels/kernels.h"
#include "runtime/operations/operations.h"

namespace roundelay::runtime {
namespace {

std::string check(const wire::Request& request, const Group&) {
  const auto op = request.reduce_op;
  if (op == ReduceOp::kAdasum) return "op=Adasum is not in this version; use Average or Sum";
  if (static_cast<int>(op) >= kReduceOpCount)
    return "unknown reduction " + std::to_string(static_cast<int>(op));
  if (!std::isfinite(request.prescale.factor) || !std::isfinite(request.postscale.factor)) {
    return "prescale_factor and postscale_factor must be finite";
  }
  return {};
}

Status prepare(Batch& batch, const Group& group, fuse::FusionBuffer& fusion) {
  const wire::Request& request = batch.request();
  batch.call.operation = Operation::kAllreduce;
  batch.call.dtype = request.dtype;
  batch.call.reduce_op = request.reduce_op == ReduceOp::kAverage ? ReduceOp::kSum : request.reduce_op;
  batch.call.scale = request.postscale;
  if (request.reduce_op == ReduceOp::kAverage) batch.call.scale.divisor *= group.size();

  if (batch.entries.size() == 1) {
    const submit::Entry& entry = *batch.entries.front();
    if (entry.input != entry.output || !request.prescale.identity()) {
      kernels::scale_copy(entry.output, entry.input, entry.count, request.dtype, request.prescale);
    }
    batch.call.buffer = {entry.output, 0, entry.bytes(), collective::kAdHoc};
    return {};
  }

  std::vector<std::size_t> sizes;
  sizes.reserve(batch.entries.size());
  for (const auto& entry : batch.entries) sizes.push_back(entry->bytes());
  batch.layout = fuse::make_layout(sizes);
  ROUNDELAY_RETURN_IF_ERROR(fusion.reserve(batch.layout.bytes));
  std::vector<fuse::PackItem> items;
  items.reserve(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    items.push_back({batch.entries[i]->input, batch.entries[i]->count, batch.layout.slots[i]});
  }
  fuse::pack(items, request.dtype, request.prescale, fusion.data());
  batch.fusion = &fusion;
  batch.call.buffer = {fusion.data(), 0, batch.layout.bytes, collective::kAdHoc};
  return {};
}

void finish(Batch& batch) {
  if (batch.fusion == nullptr) return;
  std::vector<fuse::UnpackItem> items;
  items.reserve(batch.entries.size());
  for (std::size_t i = 0; i < batch.entries.size(); ++i) {
    items.push_back({batch.entries[i]->output, batch.entries[i]->count, batch.layout.slots[i]});
  }
  fuse::unpack(items, batch.request().dtype, Scale{}, batch.fusion->data());
}

}  // namespace

const OperationSteps kAllreduceSteps = {check, prepare, finish};

}  // namespace roundelay::runtime
