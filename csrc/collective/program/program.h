// A collective algorithm is a program: a coroutine that posts transfers on an Exchange, waits for them with
// co_await, and computes between waits. Nothing in it blocks.
//
// Rules for authors: a parameter is a value, or a reference to an object that outlives the program. An
// expression with co_await has no temporary with a destructor (tools/check_awaits.py): compilers in use
// miscompile it.
#pragma once

#include <coroutine>
#include <utility>
#include <variant>

#include "collective/call.h"
#include "collective/program/exchange.h"

namespace roundelay::collective {

class Program {
 public:
  struct promise_type {
    bool threw = false;
    Program get_return_object() { return Program(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { threw = true; }
  };

  Program(Program&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Program& operator=(Program&&) = delete;
  ~Program() {
    if (handle_) handle_.destroy();
  }

  // Runs to the next wait that is not over yet, or to the end. Not to be called after the end.
  void resume() { handle_.resume(); }
  [[nodiscard]] bool done() const { return handle_.done(); }
  // Returns whether the program ended because memory ran out. It throws nothing else.
  [[nodiscard]] bool threw() const { return handle_.promise().threw; }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Program(Handle handle) : handle_(handle) {}
  Handle handle_;
};

// An algorithm has a name, for tests and logs, and a program. The exchange and the call outlive the program.
struct Algorithm {
  const char* name;
  Program (*program)(Exchange& net, const Call& call);
};

// Returns the algorithm of a program for one kind of call. It may only get calls of that kind.
template <class Kind, Program (*kProgram)(Exchange& net, const Kind& call)>
constexpr Algorithm algorithm_for(const char* name) {
  return {name, [](Exchange& net, const Call& call) { return kProgram(net, std::get<Kind>(call)); }};
}

}  // namespace roundelay::collective
