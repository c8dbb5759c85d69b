// Passes the requests of other threads to the negotiator, which runs in the thread that holds its token.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/annotations.h"
#include "base/group.h"
#include "wire/messages.h"

namespace roundelay::control {

// The answer to NegotiationSink::state_asked().
struct StateReply {
  int to = 0;  // the rank that asked
  std::string text;
};

// Thread-safe. The negotiator acts upon all of it in its next step; Engine::wake() makes that come soon.
class ControlInbox {
 public:
  // Stuck and Abort report a fault of this rank. A TimelineChunk goes to rank 0; a TimelineSwitch, which
  // only rank 0 posts, goes to all other ranks.
  using Message =
      std::variant<wire::Stuck, wire::Abort, wire::TimelineChunk, wire::TimelineSwitch, StateReply>;
  using Task = std::function<void()>;
  struct Contents {
    std::vector<Task> tasks;
    std::vector<LaneId> end_linger;
    std::vector<Message> messages;
  };

  // Asks for orders of what is ready, without lingering: in all lanes, or in one.
  void request_end_of_linger() { end_linger_.store(true, std::memory_order_release); }
  void request_end_of_linger(LaneId lane) EXCLUDES(mutex_);
  // Tells all coordinators that this rank leaves: they order nothing more that needs it.
  void request_leave() { leave_.store(true, std::memory_order_release); }
  // Hands a message to the negotiator.
  void post(Message message) EXCLUDES(mutex_);
  // Runs the task with the negotiation token held.
  void run(Task task) EXCLUDES(mutex_);

  // Only the negotiator calls these. drain() empties the inbox.
  Contents drain() EXCLUDES(mutex_);
  [[nodiscard]] bool take_end_of_linger() { return end_linger_.exchange(false, std::memory_order_acq_rel); }
  [[nodiscard]] bool leaving() const { return leave_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> end_linger_{false};
  std::atomic<bool> leave_{false};
  Mutex mutex_;
  Contents contents_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::control
