#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/group.h"
#include "collective/engine/slots.h"
#include "collective/fabric.h"
#include "collective/program/transport.h"
#include "collective/shm/pair_rings.h"
#include "collective/shm/pair_streams.h"

namespace roundelay::collective {

// A Transport within a node. Bytes go through a ring in shared memory for each ordered pair. A message
// travels when both sides have posted it. (pair_streams.h)
//
// One thread at a time. Who tests a transfer moves the bytes of its peer, and of all others in turn. A member
// that goes is seen by the others; one whose process dies is not, so that somebody else must end what waits
// for it.
class ShmTransport final : public Transport, public Waker {
 public:
  // Reserves a part of the memory before its first use. Errors: kUnavailable.
  using Allocate = std::function<Status(ByteRange part)>;

  // `memory` has shm::PairRings::bytes(group.size()) bytes, which were zero before the first member came, and
  // its control_bytes() are allocated. All members have the same memory.
  ShmTransport(std::shared_ptr<std::byte> memory, Group group, const Allocate& allocate);
  // Fails the peers' transfers with this member that are not over.
  ~ShmTransport() override;

  [[nodiscard]] int index() const override { return group_.index; }
  [[nodiscard]] int size() const override { return group_.size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override;
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override;
  Result<bool> test(TransferId id) override;
  // May be a long sleep, which ends when a peer has moved something, or at wake().
  [[nodiscard]] Nap nap(Backoff& backoff) override;
  // Ends a nap. Any thread may call it.
  void wake() override { rings_.doorbell(group_.index).ring(); }

 private:
  struct Peer {
    shm::OutStream out;
    shm::InStream in;
    Status out_error{}, in_error{};  // the first ones; the stream stands still then
  };
  struct Slot {
    int peer = 0;
    bool sends = false;
    bool over = false;
  };

  TransferId acquire(int peer, bool sends);

  void step(int peer);
  template <class Stream>
  void step(int peer, Stream& stream, Status& error);
  void wake_peer(int peer);
  [[nodiscard]] bool has_work();
  [[nodiscard]] Status failure(int peer, const Status& cause) const;
  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  const std::shared_ptr<std::byte> memory_;
  const Group group_;
  const shm::PairRings rings_;
  std::deque<Peer> peers_;  // the entry of this member itself serves nobody
  Slots<Slot> slots_;
  std::vector<TransferId> over_;  // the transfers that a step has ended
  std::size_t untested_ = 0;      // transfers that are over, and whose test() has not said so
  int turn_ = 0;                  // the peer that was moved last beside that of a test
  bool moved_ = false;            // bytes have moved since the last nap()
};

}  // namespace roundelay::collective
