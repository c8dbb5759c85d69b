// The operations on several tensors.
#include <string>
#include <utility>

#include "process_group/backend.h"
#include "process_group/digest.h"
#include "process_group/errors.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {
namespace {

using WorkPtr = RoundelayBackend::WorkPtr;

void check_pairs(std::size_t outputs, std::size_t inputs, const char* operation) {
  if (outputs != 0 && outputs == inputs) return;
  refuse(std::string(operation) + ": needs one output for each input");
}

// What members have to agree on, as they see bytes alone.
std::int32_t digest_of(const Tensors& tensors) {
  Digest digest;
  for (const at::Tensor& tensor : tensors) {
    digest.add(static_cast<std::uint64_t>(tensor.scalar_type()));
    digest.add(static_cast<std::uint64_t>(tensor.numel()));
  }
  return digest.value();
}

}  // namespace

// One call, as its event in a profile is one: as bytes, since the inputs may be of several dtypes.
Prepared prepare_allgather_coalesced(Place place, const TensorLists& outputs, const Tensors& inputs) {
  const char* const name = "all_gather_coalesced";
  if (outputs.size() != static_cast<std::size_t>(place.size)) {
    refuse(std::string(name) + ": needs a list of outputs for each rank");
  }
  for (const Tensors& of_rank : outputs) {
    check_pairs(of_rank.size(), inputs.size(), name);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_tensors({inputs[i], of_rank[i]}, name);
      if (inputs[i].sizes() != of_rank[i].sizes()) refuse(std::string(name) + ": shapes differ");
    }
  }
  const at::Tensor packed = pack(inputs), gathered = at::empty({place.size * packed.numel()}, at::kByte);
  Prepared prepared = prepare_allgather(place, gathered, packed);
  collective::options_of(prepared.call).mark.detail = digest_of(inputs);
  prepared.type = ::c10d::OpType::ALLGATHER_COALESCED;
  prepared.title = "roundelay:all_gather";
  prepared.inputs = inputs;
  prepared.results.clear();
  for (const Tensors& of_rank : outputs) {
    prepared.results.insert(prepared.results.end(), of_rank.begin(), of_rank.end());
  }
  prepared.finish = [gathered, outputs] {
    const std::vector<at::Tensor> packs = gathered.chunk(static_cast<std::int64_t>(outputs.size()));
    for (std::size_t rank = 0; rank < packs.size(); ++rank) unpack(packs[rank], outputs[rank]);
  };
  return prepared;
}

WorkPtr RoundelayBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const ::c10d::AllgatherOptions& options) {
  check_usable();
  return start(prepare_allgather_coalesced(place(), outputs, inputs), options.timeout, options.asyncOp);
}

// The others are carried out one after the other, so that all are over when the last one is.
WorkPtr RoundelayBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const ::c10d::AllgatherOptions& options) {
  check_pairs(outputs.size(), inputs.size(), "all_gather_into_tensor_coalesced");
  WorkPtr last;
  for (std::size_t i = 0; i < inputs.size(); ++i) last = _allgather_base(outputs[i], inputs[i], options);
  return last;
}

WorkPtr RoundelayBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const ::c10d::ReduceScatterOptions& options) {
  check_pairs(outputs.size(), inputs.size(), "reduce_scatter_tensor_coalesced");
  WorkPtr last;
  for (std::size_t i = 0; i < inputs.size(); ++i) last = _reduce_scatter_base(outputs[i], inputs[i], options);
  return last;
}

}  // namespace roundelay::process_group
