#include "collective/select.h"

#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {
namespace {

struct Row {
  Operation operation;
  int most_members;
  std::size_t most_bytes;
  Algorithm algorithm;
};

constexpr int kAnySize = 1 << 30;
constexpr std::size_t kAnyBytes = SIZE_MAX;

// The first row that fits is taken. Thresholds: medians over Open MPI 5.0.11's shared memory, ranks on 2
// cores. With 2 ranks the ring wins above MPI's eager limit (it sends half as much a step, 4 KiB: 1.7
// against 3.7 us); with 4 recursive doubling wins up to 256 KiB (16 KiB: 50 against 70 us; 256 KiB: 222
// against 250 us).
constexpr Row kTable[] = {
    {Operation::kAllreduce, kAnySize, 0, {"local", local_allreduce}},
    {Operation::kAllreduce, 1, kAnyBytes, {"local", local_allreduce}},
    {Operation::kAllreduce, 2, 2 << 10, {"recursive_doubling", recursive_doubling_allreduce}},
    {Operation::kAllreduce, kAnySize, 256 << 10, {"recursive_doubling", recursive_doubling_allreduce}},
    {Operation::kAllreduce, kAnySize, kAnyBytes, {"ring", ring_allreduce}},
    {Operation::kBroadcast, kAnySize, kAnyBytes, {"binomial_tree", binomial_tree_broadcast}},
    {Operation::kBarrier, kAnySize, kAnyBytes, {"dissemination", dissemination_barrier}},
};

}  // namespace

const Algorithm& select_algorithm(const Call& call, int size) {
  const Row* row = kTable;
  while (row->operation != call.operation || size > row->most_members ||
         call.buffer.bytes > row->most_bytes) {
    ++row;  // the last row of each operation fits all
  }
  return row->algorithm;
}

}  // namespace roundelay::collective
