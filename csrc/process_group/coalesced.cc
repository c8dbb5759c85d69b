// The operations on several tensors that are several calls.
#include <string>
#include <utility>

#include "process_group/backend.h"
#include "process_group/errors.h"

namespace roundelay::process_group {
namespace {

using WorkPtr = RoundelayBackend::WorkPtr;

void check_pairs(std::size_t outputs, std::size_t inputs, const char* operation) {
  if (outputs != 0 && outputs == inputs) return;
  refuse(std::string(operation) + ": needs one output for each input");
}

}  // namespace

// All but allreduces are carried out one after the other, so that all are over when the last one is.
WorkPtr RoundelayBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const ::c10d::AllgatherOptions& options) {
  check_pairs(inputs.size(), inputs.size(), "all_gather_coalesced");
  if (outputs.size() != static_cast<std::size_t>(size_)) {
    refuse("all_gather_coalesced: needs a list of outputs for each rank");
  }
  WorkPtr last;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors own;
    for (const Tensors& of_rank : outputs) {
      check_pairs(of_rank.size(), inputs.size(), "all_gather_coalesced");
      own.push_back(of_rank[i]);
    }
    TensorLists lists{own};
    Tensors input{inputs[i]};
    last = allgather(lists, input, options);
  }
  return last;
}

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
