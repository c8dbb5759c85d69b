#include "collective/shm/shm_transport.h"

#include <string>
#include <utility>

namespace roundelay::collective {
namespace {

// The longest nap: a caller's deadline may pass meanwhile.
constexpr Duration kLongestNap = std::chrono::milliseconds(100);

}  // namespace

ShmTransport::ShmTransport(std::shared_ptr<std::byte> memory, Group group, const Allocate& allocate)
    : memory_(std::move(memory)), group_(std::move(group)), rings_(memory_.get(), group_.size()) {
  const int self = group_.index;
  for (int peer = 0; peer < group_.size(); ++peer) {
    const ByteRange ring = shm::PairRings::ring_of(self, peer, group_.size());
    peers_.push_back({.out = shm::OutStream(rings_.bytes(self, peer), rings_.notices(self, peer),
                                            [allocate, ring](ByteRange part) {
                                              return allocate({ring.offset + part.offset, part.bytes});
                                            }),
                      .in = shm::InStream(rings_.bytes(peer, self), rings_.notices(peer, self))});
  }
}

// A member that is about to sleep sees the closed streams, or its doorbell has rung since it began to look.
ShmTransport::~ShmTransport() {
  for (int peer = 0; peer < group_.size(); ++peer) {
    at(peer).out.close();
    at(peer).in.close();
    rings_.doorbell(peer).ring();
  }
}

TransferId ShmTransport::acquire(int peer, bool sends) {
  const TransferId id = slots_.acquire();
  slots_[id] = {.peer = peer, .sends = sends};
  return id;
}

Result<TransferId> ShmTransport::send(int peer, ConstByteSpan data, int tag) {
  const TransferId id = acquire(peer, true);
  at(peer).out.post(id, data, tag);
  step(peer);
  return id;
}

Result<TransferId> ShmTransport::receive(int peer, ByteSpan data, int tag) {
  const TransferId id = acquire(peer, false);
  at(peer).in.post(id, data, tag);
  step(peer);
  return id;
}

Result<bool> ShmTransport::test(TransferId id) {
  Slot& slot = slots_[id];
  if (!slot.over) step(slot.peer);
  if (slot.over) {
    --untested_;
    slots_.release(id);
    return true;
  }
  const Peer& peer = at(slot.peer);
  const Status& error = slot.sends ? peer.out_error : peer.in_error;
  if (!error.ok()) return error;
  turn_ = (turn_ + 1) % group_.size();
  step(turn_);
  return false;
}

void ShmTransport::step(int peer) {
  if (peer == group_.index) return;
  step(peer, at(peer).out, at(peer).out_error);
  step(peer, at(peer).in, at(peer).in_error);
}

// The peer may have written before it went. So this first sees that it has gone, and then reads.
template <class Stream>
void ShmTransport::step(int peer, Stream& stream, Status& error) {
  if (!error.ok()) return;
  const bool gone = stream.peer_gone();
  over_.clear();
  const Result<shm::StreamStep> step = stream.step(over_);
  for (const TransferId id : over_) slots_[id].over = true;
  untested_ += over_.size();
  moved_ = moved_ || (step.ok() && step->moved);
  if (!step.ok()) {
    error = failure(peer, step.status());
  } else if (step->wakes_peer) {
    wake_peer(peer);
  } else if (gone && !step->moved) {
    error = failure(peer, Status::aborted("it has closed its end"));
  }
}

// Sequentially consistent, as nap() is: the peer sees what was written, or is seen asleep.
void ShmTransport::wake_peer(int peer) {
  shm::Doorbell& doorbell = rings_.doorbell(peer);
  if (doorbell.asleep.load(std::memory_order_seq_cst) != 0 && doorbell.asleep.exchange(0) != 0)
    doorbell.ring();
}

Nap ShmTransport::nap(Backoff& backoff) {
  if (std::exchange(moved_, false)) backoff.reset();
  const Nap pause = backoff.next();
  if (!pause.sleeps() || untested_ > 0) return pause;
  shm::Doorbell& doorbell = rings_.doorbell(group_.index);
  const std::uint32_t seen = doorbell.rings.load(std::memory_order_acquire);
  doorbell.asleep.store(1, std::memory_order_seq_cst);
  if (has_work()) return {};
  return {doorbell.rings, seen, kLongestNap};
}

bool ShmTransport::has_work() {
  for (int index = 0; index < group_.size(); ++index) {
    if (index == group_.index) continue;
    Peer& peer = at(index);
    if (peer.out_error.ok() && (peer.out.has_work() || peer.out.peer_gone())) return true;
    if (peer.in_error.ok() && (peer.in.has_work() || peer.in.peer_gone())) return true;
  }
  return false;
}

Status ShmTransport::failure(int peer, const Status& cause) const {
  const int rank = group_.ranks[static_cast<std::size_t>(peer)];
  return {cause.code(), "shared memory with rank " + std::to_string(rank) + ": " + cause.message()};
}

}  // namespace roundelay::collective
