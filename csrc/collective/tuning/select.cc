#include "collective/tuning/select.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/algorithms.h"
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
constexpr int kNoSize = 0;  // no group takes this row unless its name is asked for
constexpr std::size_t kAnyBytes = SIZE_MAX;
// Two members send as many bytes in one step (direct) as in two (pairwise): 4 KiB over fabric tcp take 16 us
// and not 34. Each adds up all of them, though, and a message above an MPI's eager limit waits for its
// receiver.
constexpr std::size_t kTwoDirectBytes = 32 << 10;
// From this size on halving pays on a device. It was not measured: it is the host's threshold of recursive
// doubling.
constexpr std::size_t kDeviceDoublingBytes = 256 << 10;

constexpr Algorithm kSingle{"local", single};
constexpr Algorithm kDoubling =
    algorithm_for<AllreduceCall, recursive_doubling_allreduce>("recursive_doubling");

// Returns the row of an algorithm for calls of at most so many members and bytes.
template <class Kind, Program (*kProgram)(Exchange& net, const Kind& call)>
constexpr Row row(const char* name, int most_members, std::size_t most_bytes) {
  return {Kind::kOperation, most_members, most_bytes, algorithm_for<Kind, kProgram>(name)};
}

constexpr Row kTable[] = {
    row<AllreduceCall, direct_allreduce>("direct", 2, kTwoDirectBytes),
#define ALLREDUCE(Name, name, program, ...) row<AllreduceCall, program>(name, __VA_ARGS__),
#define ALGORITHM(Operation, name, program, ...) row<Operation##Call, program>(name, __VA_ARGS__),
#include "base/algorithms.def"
#undef ALLREDUCE
#undef ALGORITHM
};

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

Result<Select> Select::by_name(std::string_view name) {
  if (name == "auto") return Select();
  for (const AlgorithmName& one : kAlgorithmNames) {
    if (name == one.name) return Select(one.name);
  }
  return Status::invalid("there is no algorithm \"" + std::string(name) + "\"; it must be " +
                         std::string(kAlgorithmChoices));
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
