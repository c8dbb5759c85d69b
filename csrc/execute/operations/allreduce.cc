#include "collective/levels/schedule.h"
#include "collective/whole_call.h"
#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

using collective::AllreduceCall;

std::string check_allreduce(const submit::Entry& entry, const Group&) {
  const wire::Request& request = entry.request;
  const auto op = request.reduce_op;
  if (static_cast<int>(op) >= kReduceOpCount)
    return "unknown reduction " + std::to_string(static_cast<int>(op));
  std::string wrong = needs_finite_factors(request);
  if (wrong.empty()) wrong = needs_sums(request);
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

// The memory in which the tensors of a batch are reduced, if that is not their own.
struct Work {
  collective::ScatterList scattered;  // the tensors, for a fabric that takes them as they lie
  negotiate::FusionLayout layout;     // the tensors' places in the fusion buffer
};

void scatter(const Batch& batch, collective::ScatterList& list, AllreduceCall& call) {
  list.reserve(batch.tensors.size());
  for (const BatchTensor& tensor : batch.tensors) {
    const submit::Part& part = tensor.memory();
    list.add({part.input, part.output, part.bytes()});
  }
  call.scattered = &list;
  call.buffer.bytes = list.bytes();
}

Status prepare_in_place(DeviceBuffers& buffers, const Batch& batch, AllreduceCall& call) {
  const submit::Part& part = batch.tensors.front().memory();
  if (part.input != part.output) {
    ROUNDELAY_RETURN_IF_ERROR(buffers.copy(part.output, part.input, part.bytes()));
  }
  call.buffer = buffer_of(batch.request(), part);
  return {};
}

Status pack(DeviceBuffers& buffers, Batch& batch, negotiate::FusionLayout& layout, AllreduceCall& call) {
  std::vector<std::size_t> sizes;
  sizes.reserve(batch.tensors.size());
  for (const BatchTensor& tensor : batch.tensors) sizes.push_back(tensor.bytes());
  layout = negotiate::make_fusion_layout(sizes);
  const Result<std::byte*> buffer = buffers.fusion_buffer(layout.bytes);
  if (!buffer.ok()) return buffer.status();
  std::vector<PackItem> items;
  items.reserve(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    items.push_back({batch.tensors[i].memory().input, layout.slots[i]});
  }
  batch.fusion = *buffer;
  call.buffer = {*buffer, 0, layout.bytes};
  return buffers.pack(items, *buffer);
}

Status prepare_allreduce(DeviceBuffers& buffers, Batch& batch, Work& work, AllreduceCall& call) {
  call.dtype = batch.tensors.front().dtype();
  call.stream = buffers.stream();
  collective::Fabric& fabric = buffers.fabric();
  set_reduction(call, batch.request(), fabric.group().size());
  const bool in_region = batch.tensors.front().memory().region != nullptr;
  const bool scatters = fabric.capabilities().scattered && call.reduce_op != ReduceOp::kAdasum && !in_region;
  if (scatters) {
    scatter(batch, work.scattered, call);
    return {};
  }
  return batch.tensors.size() == 1 ? prepare_in_place(buffers, batch, call)
                                   : pack(buffers, batch, work.layout, call);
}

Status unpack(DeviceBuffers& buffers, const Batch& batch, const negotiate::FusionLayout& layout) {
  if (batch.fusion == nullptr) return {};
  std::vector<UnpackItem> items;
  items.reserve(batch.tensors.size());
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    items.push_back({batch.tensors[i].memory().output, layout.slots[i]});
  }
  return buffers.unpack(items, batch.fusion);
}

collective::Task run_allreduce(DeviceBuffers& buffers, Batch& batch) {
  Work work;
  collective::Call call;
  Status ready = prepare_allreduce(buffers, batch, work, new_call<AllreduceCall>(call, batch));
  if (!ready.ok()) co_return ready;
  co_await collective::Calling(buffers.fabric(), call);
  co_return unpack(buffers, batch, work.layout);
}

}  // namespace

bool goes_over_levels(const Batch& batch, int members) {
  if (const collective::WholeCall* whole = batch.whole_call()) {
    const auto* const allreduce = std::get_if<AllreduceCall>(&whole->call);
    return allreduce != nullptr && !whole->local && !batch.on_gpu() && collective::levels::fits(*allreduce);
  }
  if (batch.steps != &kAllreduceSteps || batch.on_gpu() || !batch.absent.empty()) return false;
  AllreduceCall call;
  call.dtype = batch.tensors.front().dtype();
  set_reduction(call, batch.request(), members);
  return collective::levels::fits(call);
}

const OperationSteps kAllreduceSteps = {check_allreduce, run_allreduce};

}  // namespace roundelay::execute
