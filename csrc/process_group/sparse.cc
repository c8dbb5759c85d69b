// Allreduces of sparse tensors: members have different numbers of values, at different places.
#include <ATen/Functions.h>

#include <string>
#include <utility>

#include "process_group/backend.h"
#include "process_group/errors.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {
namespace {

// What members tell each other first: the number of values, their type, that of sparse dimensions, the sizes.
at::Tensor shape_of(const at::Tensor& tensor) {
  std::vector<std::int64_t> shape{tensor._nnz(), static_cast<std::int64_t>(tensor.scalar_type()),
                                  tensor.sparse_dim()};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::tensor(shape, at::kLong);
}

// A member's indices and values.
Tensors parts_of(const at::Tensor& tensor) { return {tensor._indices(), tensor._values()}; }

// Returns memory for the parts of a member that has so many values.
Tensors room_for(std::int64_t count, const at::Tensor& own) {
  std::vector<std::int64_t> values = own._values().sizes().vec();
  values[0] = count;
  return {at::empty({own.sparse_dim(), count}, own._indices().options()),
          at::empty(values, own._values().options())};
}

void check_sparse(const at::Tensor& tensor, const ::c10d::ReduceOp& op) {
  const char* const name = "all_reduce";
  if (!tensor.device().is_cpu()) check_tensor(tensor, name);
  if (op.op_ != ::c10d::ReduceOp::SUM) refuse(std::string(name) + ": of sparse tensors takes SUM alone");
}

}  // namespace

// Each member gets all values and adds them in the order of ranks, so that all have the same bits. A member
// knows how much memory that takes when all have told the number of theirs.
RoundelayBackend::WorkPtr RoundelayBackend::sum_sparse(const at::Tensor& tensor,
                                                       const ::c10d::AllreduceOptions& options) {
  check_sparse(tensor, options.reduceOp);
  const at::Tensor own = tensor.detach().coalesce(), shape = shape_of(own);
  const at::Tensor shapes = at::empty({size_, shape.numel()}, shape.options());
  start(prepare_allgather(place(), shapes, shape), options.timeout, false)->wait(kNoTimeout);

  std::vector<Tensors> parts;
  Tensors packs;
  for (int rank = 0; rank < size_; ++rank) {
    const at::Tensor theirs = shapes[rank];
    if (!at::equal(theirs.narrow(0, 1, theirs.numel() - 1), shape.narrow(0, 1, shape.numel() - 1))) {
      refuse("all_reduce: rank " + std::to_string(rank) + " has a sparse tensor of another shape or type");
    }
    parts.push_back(room_for(theirs[0].item<std::int64_t>(), own));
    packs.push_back(pack(parts.back()));
  }
  Prepared prepared = prepare_allgather(place(), packs, pack(parts_of(own)));
  prepared.type = ::c10d::OpType::ALLREDUCE;
  prepared.title = "roundelay:sparse_all_reduce";
  prepared.inputs = prepared.results = {tensor};
  prepared.finish = [tensor, parts, packs, bring = prepared.finish] {
    if (bring) bring();
    at::Tensor sum;
    for (std::size_t rank = 0; rank < packs.size(); ++rank) {
      unpack(packs[rank], parts[rank]);
      const at::Tensor part = at::sparse_coo_tensor(parts[rank][0], parts[rank][1], tensor.sizes());
      sum = sum.defined() ? sum + part : part;
    }
    tensor.copy_(sum.coalesce());  // not to detach(), which would have indices of its own
  };
  return start(std::move(prepared), options.timeout, options.asyncOp);
}

}  // namespace roundelay::process_group
