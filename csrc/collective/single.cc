#include "collective/single.h"

#include <cstring>

#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

void scale_single(const Reduction& how, const ScatterList::Run& run) {
  const std::size_t count = run.bytes / size_of(how.dtype);
  const bool unscaled = how.prescale.identity() && how.scale.identity();
  if (count == 0 || (unscaled && run.input == run.output)) return;
  const void* const part[] = {run.input};
  const ReduceOp op = how.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : how.reduce_op;
  kernels::reduce_parts(run.output, part, count, how.dtype, op, how.prescale, how.scale);
}

}  // namespace

void finish_single(const Call& call) {
  const auto* const allreduce = std::get_if<AllreduceCall>(&call);
  if (allreduce != nullptr && allreduce->scattered != nullptr) {
    allreduce->scattered->for_each(0, allreduce->buffer.bytes, [&](std::size_t, const ScatterList::Run& run) {
      scale_single(*allreduce, run);
    });
    return;
  }
  const SingleWork work = std::visit([](const auto& one) { return one.single_work(); }, call);
  if (work.output.empty()) return;
  if (work.arithmetic == nullptr) {
    std::memmove(work.output.data(), work.input, work.output.size());
  } else {
    scale_single(*work.arithmetic, {work.input, work.output.data(), work.output.size()});
  }
}

}  // namespace roundelay::collective
