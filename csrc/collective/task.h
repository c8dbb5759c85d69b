// A task: a coroutine that carries out one operation in one call of a fabric, or in several, one after the
// other. It fills a Call, co_awaits it, and goes on when the call is over.
//
// A task never blocks and starts no call itself. Its owner resumes it, starts the call that it asks for,
// tests that call, and resumes the task when the call is over. If a call fails, the owner destroys the task.
//
// Rules for authors: the first parameter of a task is a FramePool, or an object that has frames(); a member
// function may be a task, too. A parameter is a value, or a reference to an object that outlives the task. An
// expression with co_await has no temporary with a destructor (tools/check_awaits.py): compilers in use
// miscompile it.
#pragma once

#include <coroutine>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/frame_pool.h"
#include "base/status.h"
#include "collective/call.h"
#include "collective/fabric.h"

namespace roundelay::collective {

// One thread at a time.
class Task {
 public:
  // A task waits for this call of this fabric. Both live until the task is resumed. A call that is one of
  // several may have a name, for the timeline.
  struct Awaited {
    Fabric* fabric = nullptr;
    Call* call = nullptr;
    std::string_view name{};
  };

  struct promise_type {
    Awaited awaited{};
    Status status{};

    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(Status end) noexcept { status = std::move(end); }
    // A task throws nothing but std::bad_alloc.
    void unhandled_exception() noexcept { status = Status::unavailable("ran out of memory"); }

    template <class First, class... Rest>
    static void* operator new(std::size_t bytes, First& first, Rest&... rest) {
      return pool_of(first, rest...).allocate(bytes);
    }
    static void operator delete(void* frame) { FramePool::release(frame); }

   private:
    template <class First, class... Rest>
    static FramePool& pool_of(First& first, Rest&... rest) {
      if constexpr (requires { first.frames(); }) {
        return first.frames();
      } else if constexpr (std::is_same_v<First, FramePool>) {
        return first;
      } else {
        return pool_of(rest...);  // `first` is the object of a member function
      }
    }
  };

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    Task(std::move(other)).swap(*this);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }
  void swap(Task& other) noexcept { std::swap(handle_, other.handle_); }

  explicit operator bool() const { return handle_ != nullptr; }
  // Runs to the next call, or to the end. Not to be called after the end.
  void resume() { handle_.resume(); }
  [[nodiscard]] bool done() const { return handle_.done(); }
  // Returns how the task ended. Only after the end.
  [[nodiscard]] const Status& status() const { return handle_.promise().status; }
  // Returns the call that the task waits for. Only before the end, after resume().
  [[nodiscard]] const Awaited& awaited() const { return handle_.promise().awaited; }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Task(Handle handle) : handle_(handle) {}
  Handle handle_ = nullptr;

  friend class Calling;
};

// `co_await Calling(fabric, call)` in a task: the task goes on when the call is over. `call` is a variable of
// the task. The owner sets its deadline and abort token.
class Calling {
 public:
  Calling(Fabric& fabric, Call& call, std::string_view name = {}) : awaited_{&fabric, &call, name} {}
  [[nodiscard]] static bool await_ready() { return false; }
  void await_suspend(Task::Handle task) const noexcept { task.promise().awaited = awaited_; }
  void await_resume() const noexcept {}

 private:
  const Task::Awaited awaited_;
};

}  // namespace roundelay::collective
