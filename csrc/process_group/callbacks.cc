#include "process_group/callbacks.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "base/annotations.h"
#include "base/clock.h"

namespace roundelay::process_group {
namespace {

// Threads that run tasks which may wait for each other: a task that finds no idle thread gets a new one.
// Idle threads stay, and end with the process.
class Threads {
 public:
  explicit Threads(pid_t process) : process_(process) {}
  [[nodiscard]] pid_t process() const { return process_; }

  void run(std::function<void()> task) {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size()) {
      changed_.notify_one();
    } else {
      std::thread([this] { work(); }).detach();
    }
  }

 private:
  [[noreturn]] void work() {
    while (true) {
      const auto task = next();
      try {
        task();
      } catch (const std::exception& error) {  // of a callback, which nobody else hears of
        TORCH_WARN("roundelay: a callback of a future failed: ", error.what());
      }
    }
  }

  std::function<void()> next() {
    MutexLock lock(mutex_);
    ++idle_;
    while (tasks_.empty()) changed_.wait_until(mutex_, Deadline::never());
    --idle_;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  const pid_t process_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
};

// Returns this process's threads: a forked child has none of its parent's.
Threads& threads() {
  static std::atomic<Threads*> all{nullptr};
  Threads* found = all.load();
  while (found == nullptr || found->process() != ::getpid()) {
    auto* const own = new Threads(::getpid());  // lives as long as the process
    if (all.compare_exchange_strong(found, own)) return *own;
    delete own;
  }
  return *found;
}

void mark(c10::ivalue::Future& future, const std::exception_ptr& error,
          const std::vector<at::Tensor>& results) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(results));
  }
}

}  // namespace

CallFuture::CallFuture(c10::Device device)
    : future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()),
          device.is_cpu() ? std::vector<c10::Device>{} : std::vector<c10::Device>{device})) {}

CallFuture::Pointer CallFuture::get() {
  State state = State::kUnknown;
  // It is about to be complete, without callbacks: none may be added before.
  if (!state_.compare_exchange_strong(state, State::kGiven) && state == State::kOver) future_->wait();
  return future_;
}

void CallFuture::complete(const std::exception_ptr& error, const std::vector<at::Tensor>& results) {
  State state = State::kUnknown;
  if (state_.compare_exchange_strong(state, State::kOver)) return mark(*future_, error, results);
  state_ = State::kOverForOthers;
  threads().run([future = future_, error, results] { mark(*future, error, results); });
}

void CallFuture::wait_if_given() {
  if (const State state = state_; state == State::kGiven || state == State::kOverForOthers) future_->wait();
}

}  // namespace roundelay::process_group
