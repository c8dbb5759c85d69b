// Time limits for calls of other libraries that have none.
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace roundelay {

// What `call` returned, or nothing at the deadline. It runs on a thread of its own, which is then left
// behind: `call` must own all that it uses, and must not throw. Throws std::system_error where there is no
// thread.
template <typename T>
std::optional<T> within(Deadline deadline, std::function<T()> call) {
  std::packaged_task<T()> task(std::move(call));
  std::future<T> outcome = task.get_future();
  std::thread(std::move(task)).detach();
  if (deadline != Deadline::never() && outcome.wait_until(deadline.when()) == std::future_status::timeout) {
    return std::nullopt;
  }
  return outcome.get();
}

}  // namespace roundelay
