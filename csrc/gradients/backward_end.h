// Runs listeners at the end of the outermost backward.
//
// Autograd's engine runs a callback at the end of the backward that queued it, but reentrant checkpointing
// runs backwards inside a backward. The inner one runs while a node of the outer graph is evaluated. The
// node's successors run in the outer backward: a hook on them queues the callback there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace roundelay::gradients {

// Takes part in backwards, and is told when the outermost one ends. Callers hold the GIL. The functions may
// throw what Python throws.
class Listener {
 public:
  using Order = std::pair<int, int>;
  virtual ~Listener() = default;
  // Listeners are waited for in this order, which is the same on all ranks.
  [[nodiscard]] virtual Order order() const = 0;
  // Returns whether the ranks have something to agree on. If so, begin_round() follows.
  virtual bool backward_ended() = 0;
  // Tells the other ranks what was submitted; does not wait. `final`: this rank is in step() and has no
  // further gradients. `alone`: end_round() comes next.
  [[nodiscard]] virtual Status begin_round(bool final, bool alone) = 0;
  // Waits until everything that was submitted is complete.
  [[nodiscard]] virtual Status end_round() = 0;
};

// The functions of autograd's engine and of Python that BackwardEnd calls. The bindings set them once.
struct Engine {
  void (*queue)(int task) = nullptr;  // makes the engine call ended() at the end of the running backward
  void (*pass_on)() = nullptr;  // calls queue() in the outer backward; its node is the current one. May throw
};

// The listeners that take part in the running backwards: threads may each run one. There is one object in a
// process. Callers hold the GIL.
class BackwardEnd {
 public:
  void use(const Engine& engine) { engine_ = engine; }
  // Adds `listener` to the running backward, and returns the backward's number. Hooks call it.
  int add(const std::shared_ptr<Listener>& listener);
  // Queues ended() in the running backward, if it is not yet.
  void queue();
  // Ends the backward of this graph task: the engine calls it. Errors: the first one of the listeners, which
  // are all waited for. Throws what a listener throws.
  [[nodiscard]] Status ended(int task);
  // Returns the sum of the times of all backwards of this process, each from its first gradient to its end.
  [[nodiscard]] Duration total() const { return total_; }

 private:
  using Listeners = std::vector<std::shared_ptr<Listener>>;
  // Not owned: a backward that raises never ends.
  using Waiting = std::vector<std::weak_ptr<Listener>>;
  [[nodiscard]] Waiting& waiting_in(int task);
  [[nodiscard]] static Status complete(const Listeners& listeners);
  void end_span();

  Engine engine_;
  std::map<int, Waiting> waiting_;  // by the graph task that has our callback
  Waiting inner_;                   // those of backwards within a backward, which goes on with them
  TimePoint began_{};               // TimePoint{}: no gradient has come
  Duration total_{0};
};

BackwardEnd& backward_end();

}  // namespace roundelay::gradients
