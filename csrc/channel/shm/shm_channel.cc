#include "channel/shm/shm_channel.h"

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <utility>

namespace roundelay::channel {
namespace {

constexpr std::size_t kPartsAtOnce = 16;
constexpr Duration kClosingSlice = std::chrono::microseconds(200);
constexpr int kPollsPerClockRead = 16;

}  // namespace

ShmChannel::ShmChannel(std::unique_ptr<Channel> beside, std::shared_ptr<std::byte> memory, Group node)
    : beside_(std::move(beside)),
      memory_(std::move(memory)),
      node_(std::move(node)),
      rings_(memory_.get(), node_.size()) {
  MutexLock lock(mutex_);
  for (int other = 0; other < node_.size(); ++other) {
    if (other == node_.index) continue;
    peers_.push_back({.rank = node_.ranks[static_cast<std::size_t>(other)],
                      .out = rings_.ring(node_.index, other),
                      .in = rings_.ring(other, node_.index)});
  }
}

ShmChannel::~ShmChannel() {
  MutexLock lock(mutex_);
  for (Peer& peer : peers_) peer.in.close_reader();
}

ShmChannel::Peer* ShmChannel::find(int rank) {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [rank](const Peer& peer) { return peer.rank == rank; });
  return found == peers_.end() ? nullptr : &*found;
}

Status ShmChannel::send(int to, ConstByteSpan message) {
  MutexLock lock(mutex_);
  Peer* const peer = find(to);
  if (peer == nullptr) return beside_->send(to, message);
  ROUNDELAY_RETURN_IF_ERROR(wire::check_length(message));
  if (closing_) return Status::unavailable("the channel is closed");
  if (!peer->lost.ok()) return peer->lost;
  if (peer->out.reader_closed()) return {};
  std::size_t sent = 0;
  const auto header = wire::frame_header(message.size());
  if (peer->queue.empty()) {
    const std::array<ConstByteSpan, 2> parts = {ConstByteSpan(header), message};
    sent = peer->out.write(parts);
  }
  if (sent < header.size() + message.size()) {
    peer->queue.push(message, sent);
    pump(*peer);
  }
  peer->owes_wakeup = true;
  if (!polling_) send_wakeup(*peer);
  return {};
}

// Writes to the ring what fits now. The reader reports room for the rest.
void ShmChannel::pump(Peer& peer) {
  if (peer.out.reader_closed() || !peer.lost.ok()) peer.queue.clear();
  while (!peer.queue.empty()) {
    std::array<ConstByteSpan, kPartsAtOnce> parts;
    const std::size_t count = peer.queue.peek(parts);
    const std::size_t sent = peer.out.write(std::span(parts).first(count));
    peer.queue.advance(sent);
    peer.owes_wakeup = peer.owes_wakeup || sent > 0;
    if (sent == 0 && !peer.out.ask_for_room()) return;
  }
}

// Wakes the peer if it has not been told of bytes in its ring.
void ShmChannel::send_wakeup(Peer& peer) {
  if (std::exchange(peer.owes_wakeup, false) && !peer.out.empty()) wake_peer(peer);
}

// Sends an empty message over `beside` if the peer sleeps and does not poll.
void ShmChannel::wake_peer(Peer& peer) {
  const auto member = std::lower_bound(node_.ranks.begin(), node_.ranks.end(), peer.rank);
  Rings::SleepState& state = rings_.sleep_state(static_cast<int>(member - node_.ranks.begin()));
  if (state.polling.load(std::memory_order_seq_cst) != 0) return;
  if (state.asleep.load(std::memory_order_seq_cst) == 0 || state.asleep.exchange(0) == 0) return;
  ++wakeups_sent_;
  static_cast<void>(beside_->send(peer.rank, {}));
}

void ShmChannel::send_owed_wakeups() {
  for (Peer& peer : peers_) send_wakeup(peer);
}

// Returns the next message from the peer's ring, then its loss, then nothing.
std::optional<Incoming> ShmChannel::take_from(Peer& peer) {
  while (true) {
    auto frame = peer.reader.next();
    if (!frame.ok()) {
      peer.lost = Status::aborted("rank " + std::to_string(peer.rank) + ": " + frame.status().message());
      break;
    }
    if (frame->has_value()) return Incoming{peer.rank, std::move(**frame), {}};
    const std::size_t got = peer.in.read(peer.reader.space());
    if (got == 0) break;
    peer.reader.filled(got);
    if (peer.in.take_wish_for_room()) wake_peer(peer);
  }
  if (peer.lost.ok() || std::exchange(peer.loss_told, true)) return std::nullopt;
  return Incoming{peer.rank, {}, peer.lost};
}

// Serves the peers in turn, and writes their queued output.
std::optional<Incoming> ShmChannel::take_from_rings() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[(next_ + i) % peers_.size()];
    pump(peer);
    if (auto incoming = take_from(peer)) {
      next_ = (next_ + i + 1) % peers_.size();
      if (!polling_) send_owed_wakeups();
      return incoming;
    }
  }
  if (!polling_) send_owed_wakeups();
  return std::nullopt;
}

std::optional<Incoming> ShmChannel::receive() {
  MutexLock lock(mutex_);
  woken_.store(false, std::memory_order_relaxed);
  if (closing_) return std::nullopt;
  if (auto incoming = take_from_rings()) return incoming;
  while (auto incoming = beside_->receive()) {
    Peer* const peer = find(incoming->from);
    if (peer == nullptr) return incoming;
    if (!incoming->lost.ok()) peer->lost = incoming->lost;  // otherwise it is a wakeup
    if (auto message = take_from_rings()) return message;
  }
  return std::nullopt;
}

bool ShmChannel::something_to_do() {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.in.empty() || (!peer.lost.ok() && !peer.loss_told) ||
           (!peer.queue.empty() && peer.out.has_room());
  });
}

// Polls until there is something to do; returns false at `end`.
bool ShmChannel::poll_until(Deadline end) {
  for (int polls = 1;; ++polls) {
    {
      MutexLock lock(mutex_);
      if (something_to_do()) return true;
    }
    if (woken_.load(std::memory_order_acquire)) return true;
    if (polls % kPollsPerClockRead == 0 && end.passed()) return false;
  }
}

void ShmChannel::wait(Deadline deadline) { sleep(deadline, false); }

// Sequentially consistent, as is writing to a ring: either the writer sees a sleeper, or this thread sees its
// bytes.
void ShmChannel::sleep(Deadline deadline, bool polls) {
  {
    MutexLock lock(mutex_);
    send_owed_wakeups();
    own_sleep_state().asleep.store(1, std::memory_order_seq_cst);
    if (closing_ || something_to_do()) return;
    ++sleepers_;
    if (polls && !std::exchange(beside_polls_, true)) beside_->set_polling(true);
  }
  if (polls) {
    beside_->wait_polling(deadline, Duration{0});
  } else {
    beside_->wait(deadline);
  }
  MutexLock lock(mutex_);
  --sleepers_;
}

void ShmChannel::wait_polling(Deadline deadline, Duration polling) {
  if (polling > Duration{0} && poll_until(deadline.sooner(Deadline::after(polling)))) return;
  own_sleep_state().polling.store(0, std::memory_order_seq_cst);
  sleep(deadline, true);
  own_sleep_state().polling.store(1, std::memory_order_seq_cst);
}

void ShmChannel::wake() {
  woken_.store(true, std::memory_order_release);
  beside_->wake();
}

void ShmChannel::set_polling(bool polling) {
  bool missed = false;
  {
    MutexLock lock(mutex_);
    polling_ = polling;
    own_sleep_state().polling.store(polling ? 1 : 0, std::memory_order_seq_cst);
    if (polling) return;
    send_owed_wakeups();
    if (std::exchange(beside_polls_, false)) beside_->set_polling(false);
    // The polling thread may have received the wakeup that was meant for a sleeping thread.
    if (sleepers_ > 0) own_sleep_state().asleep.store(1, std::memory_order_seq_cst);
    missed = something_to_do();
  }
  if (missed) wake();  // another thread takes it
}

bool ShmChannel::all_out() {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.queue.empty(); });
}

void ShmChannel::close(Deadline deadline) {
  while (true) {
    {
      MutexLock lock(mutex_);
      closing_ = true;
      for (Peer& peer : peers_) {
        peer.in.close_reader();
        pump(peer);
      }
      send_owed_wakeups();
      if (all_out() || deadline.passed()) break;
    }
    std::this_thread::sleep_for(kClosingSlice);
  }
  beside_->close(deadline);
}

}  // namespace roundelay::channel
