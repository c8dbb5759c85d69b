// The control plane of N ranks in one process: threads use it like any channel, simulations deliver by hand.
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
  kAtOnce,  // a message can be received as soon as it was sent
  kByHand,  // messages stay on their link until deliver(); wait() never sleeps
};

// Thread-safe. Its channels keep the hub's state alive.
class Hub {
 public:
  struct Link {
    int from = -1;
    int to = -1;
    friend auto operator<=>(const Link&, const Link&) = default;
  };

  Hub(int size, Delivery delivery);

  // One for each rank.
  [[nodiscard]] std::unique_ptr<Channel> channel(int rank);

  // For kByHand. Links with something on them (messages to oneself too), in ascending order.
  [[nodiscard]] std::vector<Link> pending_links() const;
  // Makes the oldest message (or the loss) of that link receivable; false if there is none.
  bool deliver(int from, int to);

  // The rank dies: what is on its links vanishes, all others see it lost at once. What they could
  // already receive stays before the loss.
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
    std::map<Link, std::deque<Incoming>> links GUARDED_BY(mutex);  // no empty queues
  };

  std::shared_ptr<State> state_;
};

}  // namespace roundelay::channel
