// The control plane of N ranks in one process, for tests. Threads use its channels as any other; simulations
// deliver messages one by one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "channel/channel.h"

namespace roundelay::channel {

enum class Delivery : unsigned char {
  kAtOnce,  // a message can be received as soon as it is sent
  kByHand,  // a message stays on its link until deliver(); wait() never sleeps
};

// Thread-safe. Its channels keep the hub's state alive.
class Hub {
 public:
  // The direction from one rank to another.
  struct Link {
    int from = -1;
    int to = -1;
    friend auto operator<=>(const Link&, const Link&) = default;
  };

  Hub(int size, Delivery delivery);

  // Makes the channel of one rank. May be called once per rank.
  [[nodiscard]] std::unique_ptr<Channel> channel(int rank);

  // Returns the links that hold messages, also from a rank to itself, in ascending order. Use it with
  // kByHand.
  [[nodiscard]] std::vector<Link> pending_links() const;
  // Makes the oldest message (or the loss) of a link receivable. Returns false if the link is empty.
  bool deliver(int from, int to);

  // Simulates a rank's death: discards the messages on its links and reports its loss to all others at once.
  // Messages that they could already receive come before the loss.
  void disconnect(int rank);

 private:
  class Port;
  struct Mailbox {
    std::deque<Incoming> inbox;
    CondVar changed;
    std::uint64_t wakes = 0;
    bool wake_pending = false;
    bool gone = false;
    std::vector<bool> saw_loss_of;
  };
  struct State {
    State(int size, Delivery how);
    void post(int from, int to, Incoming incoming) REQUIRES(mutex);
    void arrive(int to, Incoming incoming) REQUIRES(mutex);
    Mailbox& at(int rank) REQUIRES(mutex) { return boxes[static_cast<std::size_t>(rank)]; }

    const Delivery delivery;
    const int size;
    mutable Mutex mutex;
    std::deque<Mailbox> boxes GUARDED_BY(mutex);
    std::map<Link, std::deque<Incoming>> links GUARDED_BY(mutex);  // has no empty queues
  };

  std::shared_ptr<State> state_;
};

}  // namespace roundelay::channel
