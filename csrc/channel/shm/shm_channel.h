// The control plane within a node. Messages go through rings in shared memory, without a system call if the
// reader polls. A second channel does the rest: messages to other nodes and to this rank itself, wakeups
// (empty messages that wake a sleeping peer), losses and goodbyes.
//
// A thread that polls (set_polling) sends its wakeups only when it goes to sleep or stops polling, because
// the peer may be polling too and answer before that.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "base/group.h"
#include "channel/channel.h"
#include "channel/shm/rings.h"
#include "wire/frames.h"

namespace roundelay::channel {

class ShmChannel final : public Channel {
 public:
  // `node` holds the world's ranks that share `memory`. The memory has Rings::bytes(node.size()) bytes, which
  // were zeros before the first rank used them. `beside` must already connect all ranks of the node to each
  // other, so that wakeups need no connection setup. The channel takes ownership of `beside` and shares
  // `memory`.
  ShmChannel(std::unique_ptr<Channel> beside, std::shared_ptr<std::byte> memory, Group node);
  // Without an earlier close() the peers see this rank as lost, because `beside` reports it.
  ~ShmChannel() override;

  Status send(int to, ConstByteSpan message) override EXCLUDES(mutex_);
  std::optional<Incoming> receive() override EXCLUDES(mutex_);
  void wait(Deadline deadline) override EXCLUDES(mutex_);
  void wake() override;
  void set_polling(bool polling) override EXCLUDES(mutex_);
  void wait_polling(Deadline deadline, Duration polling) override EXCLUDES(mutex_);
  void close(Deadline deadline) override EXCLUDES(mutex_);
  [[nodiscard]] std::int64_t wakeups_sent() const override { return wakeups_sent_; }

 private:
  struct Peer {
    int rank;
    Ring out, in;
    wire::SendQueue queue{};  // messages for which `out` had no room
    wire::FrameReader reader{wire::kLongestFrame};
    bool owes_wakeup = false;  // the peer has not been told of bytes in `out`
    Status lost{};             // the loss that `beside` reported; receive() reports it when `in` is empty
    bool loss_told = false;
  };

  Peer* find(int rank) REQUIRES(mutex_);
  void pump(Peer& peer) REQUIRES(mutex_);
  std::optional<Incoming> take_from(Peer& peer) REQUIRES(mutex_);
  std::optional<Incoming> take_from_rings() REQUIRES(mutex_);
  void send_wakeup(Peer& peer) REQUIRES(mutex_);
  void wake_peer(Peer& peer) REQUIRES(mutex_);
  void send_owed_wakeups() REQUIRES(mutex_);
  [[nodiscard]] bool something_to_do() REQUIRES(mutex_);
  [[nodiscard]] bool all_out() REQUIRES(mutex_);
  bool poll_until(Deadline end) EXCLUDES(mutex_);
  void sleep(Deadline deadline, bool polls) EXCLUDES(mutex_);
  [[nodiscard]] Rings::SleepState& own_sleep_state() const { return rings_.sleep_state(node_.index); }

  const std::unique_ptr<Channel> beside_;
  const std::shared_ptr<std::byte> memory_;
  const Group node_;
  const Rings rings_;

  Mutex mutex_;
  std::vector<Peer> peers_ GUARDED_BY(mutex_);  // the other ranks of this node
  std::size_t next_ GUARDED_BY(mutex_) = 0;     // the peer whose ring is read next
  bool polling_ GUARDED_BY(mutex_) = false;
  int sleepers_ GUARDED_BY(mutex_) = 0;  // number of threads that sleep in beside_
  // Who polls has slept: until then it costs beside_ no system call.
  bool beside_polls_ GUARDED_BY(mutex_) = false;
  bool closing_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> woken_{false};
  std::atomic<std::int64_t> wakeups_sent_{0};
};

}  // namespace roundelay::channel
