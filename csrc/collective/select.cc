#include "collective/select.h"

#include <numeric>

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
// cores. Pairwise wins above MPI's eager limit (it sends 1/P as much a message; 4 KiB: 2.2 against 4.6 us
// with 2 ranks, 32 against 49 us with 4), and never loses to the ring by more than the noise (4 ranks, 256
// KiB: 0.5 against 1.0 ms).
constexpr Row kTable[] = {
    {Operation::kAllreduce, kAnySize, 0, {"local", single}},
    {Operation::kAllreduce, kOnePlaceMembers, 2 << 10, {"direct", direct_allreduce}},
    {Operation::kAllreduce, kOnePlaceMembers, kAnyBytes, {"pairwise", pairwise_allreduce}},
    {Operation::kAllreduce, kAnySize, 256 << 10, {"recursive_doubling", recursive_doubling_allreduce}},
    {Operation::kAllreduce, kAnySize, kAnyBytes, {"ring", ring_allreduce}},
    {Operation::kBroadcast, kAnySize, kAnyBytes, {"binomial_tree", binomial_tree_broadcast}},
    {Operation::kBarrier, kAnySize, kAnyBytes, {"dissemination", dissemination_barrier}},
    {Operation::kAllgather, kAnySize, kAnyBytes, {"pairwise", pairwise_all_gather}},
    {Operation::kAlltoall, kAnySize, kAnyBytes, {"pairwise", pairwise_alltoall}},
    {Operation::kReducescatter, kAnySize, kAnyBytes, {"pairwise", pairwise_reduce_scatter}},
};
constexpr Algorithm kSingle{"local", single};
constexpr Algorithm kAdasum{"recursive_doubling", recursive_doubling_allreduce};

bool is_adasum(const Call& call) {
  return call.operation == Operation::kAllreduce && call.reduce_op == ReduceOp::kAdasum;
}

}  // namespace

std::size_t agreed_bytes(const Call& call) {
  if (call.operation == Operation::kAlltoall) return SIZE_MAX;
  if (is_adasum(call))
    return call.buffer.bytes * (size_of(call.dtype) == 2 ? 2 : 1);  // halves travel as fp32
  if (call.operation != Operation::kReducescatter) return call.buffer.bytes;
  return std::accumulate(call.send_bytes.begin(), call.send_bytes.end(), std::size_t{0});
}

const Algorithm& select_algorithm(const Call& call, int size) {
  if (size == 1) return kSingle;
  const std::size_t bytes = agreed_bytes(call);
  if (is_adasum(call) && bytes > 0) return kAdasum;
  const Row* row = kTable;
  while (row->operation != call.operation || size > row->most_members || bytes > row->most_bytes) {
    ++row;  // the last row of each operation fits all
  }
  return row->algorithm;
}

}  // namespace roundelay::collective
