// How a lane carries out each operation. A new operation is one new file here and one line in operations.cc.
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
  // What is wrong with this rank's part by itself; empty if nothing. Called on the framework's thread.
  std::string (*check)(const submit::Entry& entry, const Group& group);
  // Brings the input to where the fabric can work on it (which may be where it is, or else the output, or the
  // fusion buffer) and fills batch.call. Errors: kUnavailable (no memory).
  Status (*prepare)(Batch& batch, DeviceBuffers& buffers);
  // After each call. True: batch.call is another one that belongs to this batch. Errors: as prepare. May be
  // null: one call is all.
  Result<bool> (*next)(Batch& batch, DeviceBuffers& buffers);
  // Brings the result to the outputs. Errors: as prepare. May be null: it is there.
  Status (*finish)(Batch& batch, DeviceBuffers& buffers);
};

// Null for what never reaches a lane's fabric: join, process set.
const OperationSteps* steps_of(Operation operation);
// What is wrong with this rank's part, whatever the operation; empty if nothing.
std::string wrong_with(const submit::Entry& entry, const Group& group);

extern const OperationSteps kAllreduceSteps;
extern const OperationSteps kBroadcastSteps;
extern const OperationSteps kBarrierSteps;
extern const OperationSteps kAllgatherSteps;
extern const OperationSteps kAlltoallSteps;
extern const OperationSteps kReducescatterSteps;
// With absent members: how many batches there will be (batch.sent), which only those know who take part.
extern const OperationSteps kAnnounceSteps;
// The other side: hears that number, and starts as many calls without taking part in them.
extern const OperationSteps kSkipSteps;

// Shared by the operations:
// Bytes of one row: of all dimensions but the first. `shape` has a first dimension.
std::size_t row_bytes(const std::vector<std::int64_t>& shape, DType dtype);
// `shape` with another first dimension.
std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows);
// Empty, or which tensor has no first dimension.
std::string needs_dimensions(const submit::Entry& entry);
std::string needs_finite_factors(const wire::Request& request);
// Of all tensors of an entry, in turn; stops at the first complaint.
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
// The call's operator and factors for a request. An average is a sum with a divisor; one with factors is
// Horovod's, whose second factor is divided instead.
void set_reduction(collective::Reduction& call, const wire::Request& request, int members);

}  // namespace roundelay::runtime
