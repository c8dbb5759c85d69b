// Turns torch.distributed's operations into calls of the group's fabric. Functions throw ValueError for
// arguments that make no sense by themselves.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

#include "process_group/work.h"

namespace roundelay::process_group {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

// A member's place in its group.
struct Place {
  int rank;
  int size;
};

// Throws ValueError, in the name of the operation, for a root that is not in the group.
void check_root(Place place, int root, const char* operation);

// Reductions.
Prepared prepare_allreduce(Place place, const Tensors& tensors, const ::c10d::ReduceOp& op);
// Averages a bucket by a technique. `digest`: tells it and its run apart from others; not negative.
Prepared prepare_average(Place place, const at::Tensor& bucket,
                         std::shared_ptr<const compress::BucketTechnique> technique, std::int32_t digest);
Prepared prepare_reduce(Place place, const Tensors& tensors, int root, const ::c10d::ReduceOp& op);
// `outputs` gets this member's shard of `inputs`, which have one tensor for each member.
Prepared prepare_reduce_scatter(Place place, const at::Tensor& output, const Tensors& inputs,
                                const ::c10d::ReduceOp& op);
// The same with all shards in one tensor.
Prepared prepare_reduce_scatter(Place place, const at::Tensor& output, const at::Tensor& input,
                                const ::c10d::ReduceOp& op);

// Moves.
Prepared prepare_broadcast(Place place, const Tensors& tensors, int root);
Prepared prepare_allgather(Place place, const Tensors& outputs, const at::Tensor& input);
Prepared prepare_allgather(Place place, const at::Tensor& output, const at::Tensor& input);
// `outputs` has a list for each member, with a tensor for each input.
Prepared prepare_allgather_coalesced(Place place, const TensorLists& outputs, const Tensors& inputs);
// The root has a list of one tensor for each member, and the others have none.
Prepared prepare_gather(Place place, const TensorLists& outputs, const Tensors& inputs, int root);
Prepared prepare_scatter(Place place, const Tensors& outputs, const TensorLists& inputs, int root);
Prepared prepare_alltoall(Place place, const Tensors& outputs, const Tensors& inputs);
// Splits count rows; empty: equal ones.
Prepared prepare_alltoall(Place place, const at::Tensor& output, const at::Tensor& input,
                          const std::vector<std::int64_t>& output_splits,
                          const std::vector<std::int64_t>& input_splits);
Prepared prepare_barrier();

}  // namespace roundelay::process_group
