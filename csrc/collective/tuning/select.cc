#include "collective/tuning/select.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

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
constexpr int kNoSize = 0;  // only ROUNDELAY_ALGORITHM takes this row
constexpr std::size_t kAnyBytes = SIZE_MAX;
// From this size on halving pays on a device. It was not measured: it is the host's threshold of recursive
// doubling.
constexpr std::size_t kDeviceDoublingBytes = 256 << 10;

constexpr Algorithm kSingle{"local", single};
constexpr Algorithm kDoubling =
    algorithm_for<AllreduceCall, recursive_doubling_allreduce>("recursive_doubling");

// Returns the row of an algorithm for calls of at most so many members and bytes.
template <class Kind, Program (*kProgram)(Exchange& net, const Kind& call)>
constexpr Row row(const char* name, int most_members = kNoSize, std::size_t most_bytes = kAnyBytes) {
  return {Kind::kOperation, most_members, most_bytes, algorithm_for<Kind, kProgram>(name)};
}

Program barrier(Exchange& net, const BarrierCall& /*call*/) { return dissemination_barrier(net); }

// A call takes the first row of its operation that fits. Thresholds: medians over Open MPI 5.0.11's
// shared memory, ranks on 2 cores. Pairwise wins above MPI's eager limit (it sends 1/P as much a message; 4
// KiB: 2.2 against 4.6 us with 2 ranks, 32 against 49 us with 4), and never loses to the ring by more than
// the noise (4 ranks, 256 KiB: 0.5 against 1.0 ms).
constexpr Row kTable[] = {
    row<AllreduceCall, direct_allreduce>("direct", kOnePlaceMembers, 2 << 10),
    row<AllreduceCall, pairwise_allreduce>("pairwise", kOnePlaceMembers),
    row<AllreduceCall, recursive_doubling_allreduce>("recursive_doubling", kAnySize, 256 << 10),
    row<AllreduceCall, ring_allreduce>("ring", kAnySize),
    row<AllreduceCall, halving_doubling_allreduce>("halving_doubling"),
    row<AllreduceCall, binomial_tree_allreduce>("binomial_tree"),
    row<AllreduceCall, pipelined_tree_allreduce>("pipelined_tree"),

    row<BroadcastCall, binomial_tree_broadcast>("binomial_tree", kAnySize),
    row<BroadcastCall, pipelined_tree_broadcast>("pipelined_tree"),

    row<ReducescatterCall, pairwise_reduce_scatter>("pairwise", kAnySize),
    row<ReducescatterCall, recursive_halving_reduce_scatter>("recursive_halving"),

    row<AllgatherCall, pairwise_all_gather>("pairwise", kAnySize),
    row<AllgatherCall, recursive_doubling_all_gather>("recursive_doubling"),
    row<AllgatherCall, ring_all_gather>("ring"),

    row<AlltoallCall, pairwise_alltoall>("pairwise", kAnySize),
    row<BarrierCall, barrier>("dissemination", kAnySize),
};

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

// Returns the only algorithm that can carry out the call; null: the table has the choice.
const Algorithm* only_one(const Call& call, int size) {
  if (size == 1) return &kSingle;
  const auto* const allreduce = std::get_if<AllreduceCall>(&call);
  if (allreduce == nullptr) return nullptr;
  if (allreduce->buffer.bytes == 0) return &kSingle;
  return allreduce->reduce_op == ReduceOp::kAdasum ? &kDoubling : nullptr;
}

const Algorithm* algorithm_named(Operation operation, std::string_view name) {
  for (const Row& row : kTable) {
    if (row.operation == operation && name == row.algorithm.name) return &row.algorithm;
  }
  return nullptr;
}

}  // namespace

std::size_t agreed_bytes(const Call& call) {
  return std::visit([](const auto& one) { return agreed(one); }, call);
}

std::vector<std::string_view> algorithm_names(Operation operation) {
  std::vector<std::string_view> names;
  for (const Row& row : kTable) {
    if (row.operation == operation) names.emplace_back(row.algorithm.name);
  }
  return names;
}

Result<Select> Select::by_name(std::string_view name) {
  if (name == "auto") return Select();
  std::string known = "auto";
  std::set<std::string_view> listed;
  for (const Row& row : kTable) {
    if (name == row.algorithm.name) return Select(row.algorithm.name);
    if (listed.insert(row.algorithm.name).second) known.append(", ").append(row.algorithm.name);
  }
  return Status::invalid("there is no algorithm \"" + std::string(name) + "\"; there are " + known);
}

Result<Select> Select::with(const Tuning& tuning, std::string_view level, bool keeps_sums) const {
  TunedRows rows;
  for (const Tuning::Choice& choice : tuning.table) {
    if (choice.level != level || (keeps_sums && traits_of(choice.operation).reduces)) continue;
    const Algorithm* const algorithm = algorithm_named(choice.operation, choice.algorithm);
    if (algorithm == nullptr) {
      return Status::invalid("the tuning file takes \"" + choice.algorithm + "\" for " +
                             std::string(name_of(choice.operation)) +
                             ", which has no such algorithm; run roundelay tune again");
    }
    rows.push_back({choice.operation, choice.members, choice.most_bytes, algorithm});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Tuned& one, const Tuned& other) {
    return one.members != other.members ? one.members > other.members : one.most_bytes < other.most_bytes;
  });
  Select with = *this;
  with.tuned_ = std::make_shared<const TunedRows>(std::move(rows));
  return with;
}

Select Select::on_device() const {
  TunedRows rows = tuned_ == nullptr ? TunedRows() : *tuned_;
  const auto add = [&rows](std::size_t most_bytes, std::string_view name) {
    rows.push_back({Operation::kAllreduce, 2, most_bytes, algorithm_named(Operation::kAllreduce, name)});
  };
  add(kDeviceDoublingBytes, "recursive_doubling");
  add(kAnyBytes, "halving_doubling");
  Select on_device = *this;
  on_device.tuned_ = std::make_shared<const TunedRows>(std::move(rows));
  return on_device;
}

const Algorithm* Select::tuned(Operation operation, std::size_t bytes, int size) const {
  if (tuned_ == nullptr) return nullptr;
  for (const Tuned& row : *tuned_) {
    if (row.operation == operation && row.members <= size && bytes <= row.most_bytes) return row.algorithm;
  }
  return nullptr;
}

const Algorithm& Select::operator()(const Call& call, int size) const {
  if (const Algorithm* only = only_one(call, size)) return *only;
  const Operation operation = operation_of(call);
  const std::size_t bytes = agreed_bytes(call);
  if (const Algorithm* asked = algorithm_named(operation, options_of(call).algorithm)) return *asked;
  if (const Algorithm* forced = algorithm_named(operation, forced_)) return *forced;
  if (const Algorithm* chosen = tuned(operation, bytes, size)) return *chosen;
  const auto* const fits = std::find_if(std::begin(kTable), std::end(kTable), [&](const Row& row) {
    return row.operation == operation && size <= row.most_members && bytes <= row.most_bytes;
  });
  return fits->algorithm;  // each operation has a row for any call
}

}  // namespace roundelay::collective
