// Operations that some members skip because they have joined. All members start the same calls. Only those
// that have the tensors know how many batches a grouped operation makes: so they send that number first.
#include <span>

#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

int first_present(const std::vector<int>& absent) {
  int member = 0;
  for (const int one : absent) member += one == member ? 1 : 0;
  return member;
}

std::string check_nothing(const submit::Entry&, const Group&) { return {}; }

// Makes `call` the one in which the first present member tells the others a number.
void tell(const Batch& batch, std::int64_t& number, collective::Call& call) {
  auto& broadcast = call.emplace<collective::BroadcastCall>();  // the absent members listen
  broadcast.root = first_present(batch.absent);
  broadcast.buffer = std::as_writable_bytes(std::span(&number, 1));
}

collective::Task tell_count(DeviceBuffers& buffers, Batch& batch) {
  std::int64_t number = batch.following;
  collective::Call call;
  tell(batch, number, call);
  co_await collective::Calling(buffers.host_fabric(), call);
  co_return Status();
}

collective::Task skip(DeviceBuffers& buffers, Batch& batch) {
  std::int64_t number = 0;
  collective::Call call;
  tell(batch, number, call);
  co_await collective::Calling(buffers.host_fabric(), call);
  for (; number > 0; --number) {
    new_call<collective::BarrierCall>(call, batch);
    co_await collective::Calling(buffers.host_fabric(), call);
  }
  co_return Status();
}

}  // namespace

const OperationSteps kTellCountSteps = {check_nothing, tell_count};
const OperationSteps kSkipSteps = {check_nothing, skip};

}  // namespace roundelay::execute
