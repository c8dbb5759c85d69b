// The steps of each operation. A new operation is one new file here and one row in base/operations.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/group.h"
#include "base/status.h"
#include "runtime/lane/batch.h"
#include "runtime/lane/device_buffers.h"

namespace roundelay::runtime {

struct OperationSteps {
  // Returns what is wrong with this rank's arguments by themselves. Empty: nothing. The submitting thread
  // calls it; the holder of the lane's token calls the other three.
  std::string (*check)(const submit::Entry& entry, const Group& group);
  // Brings the input to where the fabric can work on it and fills batch.call. That place is the input itself,
  // the output or the fusion buffer. Errors: those of DeviceBuffers.
  Status (*prepare)(Batch& batch, DeviceBuffers& buffers);
  // Called when a call is over. True: it has filled batch.call with the batch's next call. Null: the
  // operation has one call. Errors: those of DeviceBuffers.
  Result<bool> (*next)(Batch& batch, DeviceBuffers& buffers);
  // Brings the result to the outputs. Null: it is there already. Errors: those of DeviceBuffers.
  Status (*finish)(Batch& batch, DeviceBuffers& buffers);
};

// Returns the operation's steps. Null: no fabric carries it (join, process set).
const OperationSteps* steps_of(Operation operation);
// Returns what is wrong with this rank's arguments. Empty: nothing. Any thread.
std::string wrong_with(const submit::Entry& entry, const Group& group);

#define OPERATION(Name, ...) extern const OperationSteps k##Name##Steps;
#define AGREEMENT(Name, ...)
#include "base/operations.def"
#undef OPERATION
#undef AGREEMENT
// Before operations that members skip after join(): the members that take part tell the others the number of
// batches (batch.sent).
extern const OperationSteps kAnnounceSteps;
// On a member that skips them: it receives that number and starts as many calls, in which it takes no part.
extern const OperationSteps kSkipSteps;

// Shared by the operations:
// Returns the bytes of one row, which has all dimensions but the first. `shape` has a first dimension.
std::size_t row_bytes(const std::vector<std::int64_t>& shape, DType dtype);
// Returns `shape` with `rows` as its first dimension.
std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows);
// Says which tensor has no dimension. Empty: all have one.
std::string needs_dimensions(const submit::Entry& entry);
// Says that a factor is not finite. Empty: both are.
std::string needs_finite_factors(const wire::Request& request);
// Runs `check` on the dtype of each tensor in turn. Returns the first text that is not empty.
template <typename Check>
std::string each_dtype(const wire::Request& request, const Check& check) {
  std::string wrong = check(request.dtype);
  for (std::size_t i = 0; wrong.empty() && i < request.others.size(); ++i) {
    wrong = check(request.others[i].dtype);
  }
  return wrong;
}
// Makes batch.call a call of this kind without the batch's absent members, and returns it.
template <class Kind>
Kind& new_call(Batch& batch) {
  Kind& call = batch.call.emplace<Kind>();
  call.absent = batch.absent;
  return call;
}

// Sets the call's operator and factors. An average is a sum with the divisor `members`. With factors it is
// Horovod's average: the second factor is divided instead.
void set_reduction(collective::Reduction& call, const wire::Request& request, int members);

}  // namespace roundelay::runtime
