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

// The first row that fits is taken.
constexpr Row kTable[] = {
    {Operation::kAllreduce, kAnySize, 0, {"local", local_allreduce}},
    {Operation::kAllreduce, 1, kAnyBytes, {"local", local_allreduce}},
    {Operation::kAllreduce, 2, 16 << 10, {"recursive_doubling", recursive_doubling_allreduce}},
    {Operation::kAllreduce, kAnySize, 32 << 10, {"recursive_doubling", recursive_doubling_allreduce}},
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
