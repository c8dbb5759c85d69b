#include "compress/give_back.h"

#include "compress/shards.h"

namespace roundelay::compress {

Status give_back(const Technique& technique, Workspace& workspace, const Bucket& bucket) {
  if (bucket.state.empty()) return {};
  const DType dtype = bucket.reduction.dtype;
  const Residual kept = technique.residual(bucket.count, bucket.reduction.scale, place_in(workspace));
  std::byte* const values = bucket.buffer.data() + kept.elements.first * size_of(dtype);
  std::byte* const residual = bucket.state.data();
  const DType type = kernels::residual_type(dtype);
  const Scale back{kept.factor, 1};
  if (!back.identity())
    ROUNDELAY_RETURN_IF_ERROR(workspace.math().scale(residual, kept.elements.count, type, back));
  ROUNDELAY_RETURN_IF_ERROR(workspace.math().give_back(values, residual, kept.elements.count, dtype));
  return workspace.math().clear(residual, bucket.state.size());
}

collective::Task reduce_densely(const Technique& technique, Workspace& workspace, Bucket bucket) {
  Status bad = give_back(technique, workspace, bucket);
  if (!bad.ok()) co_return bad;
  collective::Call call = allreduce_of(bucket.buffer, bucket, workspace);
  co_await collective::Calling(workspace.fabric(), call, "allreduce");
  co_return Status{};
}

}  // namespace roundelay::compress
