// The control plane within a node: messages go through rings in shared memory, without a system call where
// the reader looks for them. Everything else is left to a channel beside it: messages to other nodes and to
// oneself, the wakeup that wakes a sleeper (an empty message), losses and goodbyes.
//
// Who polls (set_polling) wakeups nobody until it goes to sleep or stops polling: the answer may be on its
// way.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "base/group.h"
#include "channel/channel.h"
#include "channel/frames.h"
#include "channel/shm/rings.h"

namespace roundelay::channel {

class ShmChannel final : public Channel {
 public:
  // `node`: the ranks that share `memory` (Rings::bytes(node.size()), zeros before the first one came), of
  // the world. `beside` connects them already, each with each: a wakeup cannot wait for that.
  ShmChannel(std::unique_ptr<Channel> beside, std::shared_ptr<std::byte> memory, Group node);
  // Without close() this rank is lost to its peers, as `beside` is.
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
    SendQueue queue{};  // what `out` had no room for
    FrameReader reader{kLongestFrame};
    bool owes_wakeup = false;
    Status lost{};  // by `beside`; told when `in` is empty
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
  [[nodiscard]] Rings::Attention& own_attention() const { return rings_.attention(node_.index); }

  const std::unique_ptr<Channel> beside_;
  const std::shared_ptr<std::byte> memory_;
  const Group node_;
  const Rings rings_;

  Mutex mutex_;
  std::vector<Peer> peers_ GUARDED_BY(mutex_);  // of this node, without this rank
  std::size_t next_ GUARDED_BY(mutex_) = 0;     // whose turn it is
  bool polling_ GUARDED_BY(mutex_) = false;
  int sleepers_ GUARDED_BY(mutex_) = 0;  // threads in beside_->wait()
  bool closing_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> woken_{false};
  std::atomic<std::int64_t> wakeups_sent_{0};
};

}  // namespace roundelay::channel
