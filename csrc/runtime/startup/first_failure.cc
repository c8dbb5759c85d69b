#include "runtime/startup/first_failure.h"

#include <utility>
#include <vector>

#include "base/leak.h"

namespace roundelay::runtime {

Result<int> first_failure(collective::Fabric& fabric, bool well, Deadline deadline) {
  std::vector<std::int64_t> first = {well ? fabric.group().size() : fabric.group().index};
  collective::AllreduceCall call;
  call.buffer = {reinterpret_cast<std::byte*>(first.data()), 0, sizeof(std::int64_t), nullptr};
  call.dtype = DType::kInt64;
  call.reduce_op = ReduceOp::kMin;
  call.deadline = deadline;
  const auto pending = fabric.start(call);
  if (!pending.ok()) return pending.status();
  if (Status error = pending.value()->wait(); !error.ok()) {
    leak(std::move(first));  // MPI may still write there
    return error;
  }
  return static_cast<int>(first.front());
}

}  // namespace roundelay::runtime
