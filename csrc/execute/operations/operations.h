// The checks and the task of each operation. csrc/README.md lists what a new operation needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/group.h"
#include "base/status.h"
#include "collective/task.h"
#include "execute/batch.h"
#include "execute/device_buffers.h"

namespace roundelay::execute {

struct OperationSteps {
  // Returns what is wrong with this rank's arguments by themselves. Empty: nothing. The submitting thread
  // calls it.
  std::string (*check)(const submit::Entry& entry, const Group& group);
  // Makes the task of a batch: it brings the input to where the fabric can work on it (the input itself, the
  // output or the fusion buffer), makes its calls, and brings the result to the outputs. The batch and the
  // buffers outlive the task. The holder of the lane's token calls it. The task ends with the errors of
  // DeviceBuffers.
  collective::Task (*run)(DeviceBuffers& buffers, Batch& batch);
};

// Returns the operation's steps. Null: no fabric carries it (join, process set, agreement).
const OperationSteps* steps_of(Operation operation);
// Returns what is wrong with this rank's arguments. Empty: nothing. Any thread.
std::string wrong_with(const submit::Entry& entry, const Group& group);

#define OPERATION(Name, ...) extern const OperationSteps k##Name##Steps;
#define AGREEMENT(Name, ...)
#include "base/operations.def"
#undef OPERATION
#undef AGREEMENT
// The steps of a batch that comes before operations which some members skip after join(). The members that
// take part tell the others the number of batches (batch.following).
extern const OperationSteps kTellCountSteps;
// The steps of a member that skips such operations: it receives that number and starts as many calls, in
// which it takes no part.
extern const OperationSteps kSkipSteps;

// The steps of a batch whose entry has a call of its own (collective/whole_call.h), which nobody checks.
extern const OperationSteps kWholeCallSteps;

// Makes the task of an allreduce whose entry has a technique and of which no member is absent. It is the
// technique's task; in a flush it is a dense allreduce, to which the technique has given back what it kept.
// The rules of OperationSteps::run() hold.
collective::Task run_technique(DeviceBuffers& buffers, Batch& batch);

// Returns what is wrong with this rank's arguments of an agreement. Empty: nothing. Any thread.
std::string wrong_with_agreement(const submit::Entry& entry, const Group& group);

// The operations share the functions below. Returns the output of a tensor, which may lie in a region.
collective::Buffer buffer_of(const wire::Request& request, const submit::Part& part);
// Returns the bytes of one row, which has all dimensions but the first. `shape` has a first dimension.
std::size_t row_bytes(const std::vector<std::int64_t>& shape, DType dtype);
// Returns `shape` with `rows` as its first dimension.
std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows);
// Says which tensor has no dimension. Empty: all have one.
std::string needs_dimensions(const submit::Entry& entry);
// Says that a factor is not finite. Empty: both are.
std::string needs_finite_factors(const wire::Request& request);
// Says which type is never added up. Empty: all are.
std::string needs_sums(const wire::Request& request);
// Runs `check` on the dtype of each tensor in turn. Returns the first text that is not empty.
template <typename Check>
std::string each_dtype(const wire::Request& request, const Check& check) {
  std::string wrong = check(request.dtype);
  for (std::size_t i = 0; wrong.empty() && i < request.others.size(); ++i) {
    wrong = check(request.others[i].dtype);
  }
  return wrong;
}
// Makes `call` a call of this kind without the batch's absent members, and returns it.
template <class Kind>
Kind& new_call(collective::Call& call, const Batch& batch) {
  Kind& made = call.emplace<Kind>();
  made.absent = batch.absent;
  return made;
}
// Returns whether the batch is an allreduce that goes over the levels of a fabric with more than one, in a
// group of `members` members.
bool goes_over_levels(const Batch& batch, int members);
// Returns the memory for the result of a tensor, which has `rows` rows. Errors: those of DeviceBuffers.
Result<ByteSpan> memory_for_rows(DeviceBuffers& buffers, const BatchTensor& tensor, std::int64_t rows);

// Sets the call's operator and factors. An average is a sum with the divisor `members`, the size of the
// group. With factors it is Horovod's average: the second factor is divided instead.
void set_reduction(collective::Reduction& call, const wire::Request& request, int members);

}  // namespace roundelay::execute
