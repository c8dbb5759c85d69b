#include "collective/device/device_transport.h"

#include <utility>

namespace roundelay::collective::device {

Result<TransferId> DeviceTransport::send(int peer, ConstByteSpan data, int tag) {
  return post({.peer = peer, .tag = tag, .outgoing = data, .incoming = {}, .sends = true, .after = {}});
}

Result<TransferId> DeviceTransport::receive(int peer, ByteSpan data, int tag) {
  return post({.peer = peer, .tag = tag, .outgoing = {}, .incoming = data, .sends = false, .after = {}});
}

Result<TransferId> DeviceTransport::post(Transfer transfer) {
  Result<GpuEventPtr> end = stream_->end_of_work();
  if (!end.ok()) return end.status();
  transfer.after = std::move(end).value();
  const TransferId id = slots_.acquire();
  slots_[id] = std::move(transfer);
  waiting_.push_back(id);
  ROUNDELAY_RETURN_IF_ERROR(start_waiting());
  return id;
}

Status DeviceTransport::start(Transfer& transfer) {
  const Result<TransferId> started = transfer.sends
                                         ? medium_->send(transfer.peer, transfer.outgoing, transfer.tag)
                                         : medium_->receive(transfer.peer, transfer.incoming, transfer.tag);
  if (!started.ok()) return started.status();
  transfer.in_medium = *started;
  transfer.started = true;
  return {};
}

Status DeviceTransport::start_waiting() {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    Transfer& first = slots_[waiting_.front()];
    if (first.after != nullptr) {
      const Result<bool> reached = first.after->reached();
      if (!reached.ok()) return reached.status();
      if (!*reached) return {};
      first.after.reset();
    }
    ROUNDELAY_RETURN_IF_ERROR(start(first));
  }
  return {};
}

Result<bool> DeviceTransport::test(TransferId id) {
  ROUNDELAY_RETURN_IF_ERROR(start_waiting());
  Transfer& transfer = slots_[id];
  if (!transfer.started) return false;
  Result<bool> done = medium_->test(transfer.in_medium);
  if (done.ok() && *done) slots_.release(id);
  return done;
}

}  // namespace roundelay::collective::device
