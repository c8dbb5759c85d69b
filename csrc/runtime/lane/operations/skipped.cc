// Operations that some members skip because they have joined. All members start the same calls. Only those
// that have the tensors know how many batches a grouped operation makes: so they send that number first.
#include <span>

#include "runtime/lane/operations/operations.h"

namespace roundelay::runtime {
namespace {

int first_present(const std::vector<int>& absent) {
  int member = 0;
  for (const int one : absent) member += one == member ? 1 : 0;
  return member;
}

std::string check(const submit::Entry&, const Group&) { return {}; }

Status tell(Batch& batch, DeviceBuffers&) {
  batch.sent.resize(1);
  auto& call = batch.call.emplace<collective::BroadcastCall>();  // the absent members listen
  call.root = first_present(batch.absent);
  call.buffer = std::as_writable_bytes(std::span(batch.sent));
  return {};
}

Result<bool> skip_one(Batch& batch, DeviceBuffers&) {
  if (batch.sent.front()-- <= 0) return false;
  new_call<collective::BarrierCall>(batch);
  return true;
}

}  // namespace

const OperationSteps kAnnounceSteps = {check, tell, nullptr, nullptr};
const OperationSteps kSkipSteps = {check, tell, skip_one, nullptr};

}  // namespace roundelay::runtime
