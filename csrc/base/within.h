// Gives a time limit to calls of other libraries that have none.
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace roundelay {

// Runs `call` on a new thread and returns its result, or nothing at the deadline. After a timeout the thread
// keeps running: `call` must own everything that it uses. `call` must not throw. Any thread may call this.
// Throws std::system_error if no thread can be started.
template <typename T>
std::optional<T> within(Deadline deadline, std::function<T()> call) {
  std::packaged_task<T()> task(std::move(call));
  std::future<T> outcome = task.get_future();
  std::thread(std::move(task)).detach();
  if (deadline == Deadline::never()) return outcome.get();
  while (outcome.wait_until(deadline.look(steady_now())) == std::future_status::timeout) {
    if (deadline.passed()) return std::nullopt;
  }
  return outcome.get();
}

}  // namespace roundelay
