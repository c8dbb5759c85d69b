// A Transport that starts a transfer when the device has done the work before it: a message must not leave
// before the kernel that makes it has run, and must not come into memory that a kernel still reads. The host
// looks at events while it tests, and nothing waits.
#pragma once

#include <deque>
#include <memory>

#include "collective/device/device_stream.h"
#include "collective/engine/slots.h"
#include "collective/program/transport.h"

namespace roundelay::collective::device {

// One thread at a time. All its calls share one stream, so that transfers start in the order of posting.
class DeviceTransport final : public Transport {
 public:
  // `medium` takes this device's memory.
  DeviceTransport(std::unique_ptr<Transport> medium, std::shared_ptr<DeviceStream> stream)
      : medium_(std::move(medium)), stream_(std::move(stream)) {}

  [[nodiscard]] int index() const override { return medium_->index(); }
  [[nodiscard]] int size() const override { return medium_->size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override;
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override;
  Result<bool> test(TransferId id) override;
  [[nodiscard]] bool waits_for_peer(TransferId id) override { return slots_[id].started; }

 private:
  struct Transfer {
    int peer = 0, tag = 0;
    ConstByteSpan outgoing;
    ByteSpan incoming;
    bool sends = false;
    bool started = false;
    TransferId in_medium = 0;  // the medium's id, once the transfer has started
    GpuEventPtr after;         // null: nothing holds it back
  };
  Result<TransferId> post(Transfer transfer);
  Status start(Transfer& transfer);
  // Starts the waiting transfers that nothing holds back any more.
  Status start_waiting();

  const std::unique_ptr<Transport> medium_;
  const std::shared_ptr<DeviceStream> stream_;
  Slots<Transfer> slots_;
  std::deque<TransferId> waiting_;
};

}  // namespace roundelay::collective::device
