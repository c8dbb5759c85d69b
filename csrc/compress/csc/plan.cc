#include "compress/csc/plan.h"

#include <algorithm>

#include "compress/quota.h"

namespace roundelay::compress::csc {
namespace {

// Computes the number of chunks that go in each run.
class Quotas {
 public:
  // Momentum would change what goes densely, another wire type needs a message, and a bucket of halves has no
  // place for what the rounding of a residual loses.
  Quotas(const Options& options, std::size_t lossy, DType dtype, DType wire_type)
      : options_(options),
        lossy_(lossy),
        may_stay_(wire_type == dtype && options.momentum.factor == 0 &&
                  (kernels::residual_type(dtype) == dtype || options.share == share_of(1) || lossy == 0)) {}
  [[nodiscard]] std::size_t in(std::uint64_t run) const {
    return quota(options_.share, options_.before, lossy_, run);
  }
  [[nodiscard]] bool in_place(std::uint64_t run) const { return may_stay_ && in(run) == lossy_; }
  // Returns whether the norms of the run before choose.
  [[nodiscard]] bool by_last(std::uint64_t run) const {
    return options_.by_last_norms && run > 0 && !in_place(run - 1);
  }

 private:
  const Options& options_;
  const std::size_t lossy_;
  const bool may_stay_;
};

}  // namespace

std::size_t chosen_in(const Options& options, const BucketShape& shape, std::uint64_t run) {
  return quota(options.share, options.before, map_of(options, shape).lossy_chunks(), run);
}

RunPlan plan_of(const Options& options, const BucketShape& shape, std::uint64_t run) {
  const ChunkMap map = map_of(options, shape);
  const DType wire_type =
      shape.dtype == DType::kFloat32 ? options.wire_type.value_or(shape.dtype) : shape.dtype;
  const Quotas quotas(options, map.lossy_chunks(), shape.dtype, wire_type);
  RunPlan plan{};
  plan.chunking = chunking_of(options, shape.count);
  plan.dtype = shape.dtype;
  plan.wire_type = wire_type;
  plan.chosen = quotas.in(run);
  plan.in_place = quotas.in_place(run);
  plan.by_last = quotas.by_last(run);
  plan.first = map.first_element();
  const std::size_t dense = map.dense_elements();
  const std::size_t chosen = plan.chosen * plan.chunking.chunk;
  const std::size_t elements = dense + std::min(chosen, shape.count);
  if (plan.chosen > 0 && !plan.by_last) {
    plan.agreement = Agreement::kBefore;
  } else {
    plan.agreement = wire_type == DType::kFloat32 && elements > 0 ? Agreement::kWith : Agreement::kAfter;
  }
  plan.dense_at = plan.agreement == Agreement::kWith ? plan.chunking.chunks() : 0;
  plan.chunks_at = plan.dense_at + dense;
  plan.room = plan.chunks_at + chosen;
  plan.sent = plan.dense_at + elements;
  return plan;
}

}  // namespace roundelay::compress::csc
