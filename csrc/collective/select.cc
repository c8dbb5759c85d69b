#include "collective/select.h"

#include <numeric>

#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {
namespace {

struct Row {
  int most_members;
  std::size_t most_bytes;
  Algorithm algorithm;
};

constexpr int kAnySize = 1 << 30;
constexpr std::size_t kAnyBytes = SIZE_MAX;

constexpr Algorithm kSingle{"local", single};
constexpr Algorithm kDoubling =
    algorithm_for<AllreduceCall, recursive_doubling_allreduce>("recursive_doubling");

// The first row that fits is taken. Thresholds: medians over Open MPI 5.0.11's shared memory, ranks on 2
// cores. Pairwise wins above MPI's eager limit (it sends 1/P as much a message; 4 KiB: 2.2 against 4.6 us
// with 2 ranks, 32 against 49 us with 4), and never loses to the ring by more than the noise (4 ranks, 256
// KiB: 0.5 against 1.0 ms).
constexpr Row kAllreduces[] = {
    {kAnySize, 0, kSingle},
    {kOnePlaceMembers, 2 << 10, algorithm_for<AllreduceCall, direct_allreduce>("direct")},
    {kOnePlaceMembers, kAnyBytes, algorithm_for<AllreduceCall, pairwise_allreduce>("pairwise")},
    {kAnySize, 256 << 10, kDoubling},
    {kAnySize, kAnyBytes, algorithm_for<AllreduceCall, ring_allreduce>("ring")},
};
constexpr Algorithm kBroadcast = algorithm_for<BroadcastCall, binomial_tree_broadcast>("binomial_tree");
constexpr Algorithm kBarrier{"dissemination",
                             [](Exchange& net, const Call&) { return dissemination_barrier(net); }};
constexpr Algorithm kAllgather = algorithm_for<AllgatherCall, pairwise_all_gather>("pairwise");
constexpr Algorithm kAlltoall = algorithm_for<AlltoallCall, pairwise_alltoall>("pairwise");
constexpr Algorithm kReducescatter = algorithm_for<ReducescatterCall, pairwise_reduce_scatter>("pairwise");

std::size_t agreed(const AllreduceCall& call) {
  const bool widened = call.reduce_op == ReduceOp::kAdasum && size_of(call.dtype) == 2;
  return call.buffer.bytes * (widened ? 2 : 1);  // Adasum's halves travel as fp32
}
std::size_t agreed(const BroadcastCall& call) { return call.buffer.size(); }
std::size_t agreed(const BarrierCall& /*call*/) { return 0; }
std::size_t agreed(const AllgatherCall& call) { return call.output.size(); }
std::size_t agreed(const AlltoallCall& /*call*/) { return SIZE_MAX; }
std::size_t agreed(const ReducescatterCall& call) {
  return std::accumulate(call.shard_bytes.begin(), call.shard_bytes.end(), std::size_t{0});
}

const Algorithm& choose(const AllreduceCall& call, int size) {
  const std::size_t bytes = agreed(call);
  if (call.reduce_op == ReduceOp::kAdasum && bytes > 0) return kDoubling;
  const Row* row = kAllreduces;
  while (size > row->most_members || bytes > row->most_bytes) ++row;  // the last row fits all
  return row->algorithm;
}
const Algorithm& choose(const BroadcastCall& /*call*/, int /*size*/) { return kBroadcast; }
const Algorithm& choose(const BarrierCall& /*call*/, int /*size*/) { return kBarrier; }
const Algorithm& choose(const AllgatherCall& /*call*/, int /*size*/) { return kAllgather; }
const Algorithm& choose(const AlltoallCall& /*call*/, int /*size*/) { return kAlltoall; }
const Algorithm& choose(const ReducescatterCall& /*call*/, int /*size*/) { return kReducescatter; }

}  // namespace

std::size_t agreed_bytes(const Call& call) {
  return std::visit([](const auto& one) { return agreed(one); }, call);
}

const Algorithm& select_algorithm(const Call& call, int size) {
  if (size == 1) return kSingle;
  return std::visit([size](const auto& one) -> const Algorithm& { return choose(one, size); }, call);
}

}  // namespace roundelay::collective
