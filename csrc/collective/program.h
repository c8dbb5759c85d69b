// A collective algorithm as a resumable program: a coroutine that posts transfers on an Exchange and waits
// for them with co_await; between waits it computes. Nothing in it blocks.
//
// Rules for authors (compilers in use miscompile the rest): parameters by value or as references to objects
// that outlive the program; no temporary with a destructor in an expression with co_await.
#pragma once

#include <coroutine>
#include <utility>
#include <variant>

#include "collective/call.h"
#include "collective/exchange.h"

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

  // Runs to the next wait that is not over yet, or to the end.
  void resume() { handle_.resume(); }
  [[nodiscard]] bool done() const { return handle_.done(); }
  [[nodiscard]] bool threw() const { return handle_.promise().threw; }  // out of memory: nothing else throws

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Program(Handle handle) : handle_(handle) {}
  Handle handle_;
};

// An algorithm has a name for people and a program. The exchange and the call outlive the program.
struct Algorithm {
  const char* name;
  Program (*program)(Exchange& net, const Call& call);
};

// Makes an algorithm for calls of one kind.
template <class Kind, Program (*kProgram)(Exchange& net, const Kind& call)>
constexpr Algorithm algorithm_for(const char* name) {
  return {name, [](Exchange& net, const Call& call) { return kProgram(net, std::get<Kind>(call)); }};
}

}  // namespace roundelay::collective
