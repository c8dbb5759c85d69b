// A stream of the fake device: a queue of work, and a thread that does the work late.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "base/annotations.h"
#include "base/clock.h"

namespace roundelay::doubles {

// Thread-safe.
class FakeStream {
 public:
  using Work = std::function<void()>;

  struct Options {
    int device = 0;
    unsigned seed = 1;
    Duration longest_delay{0};  // the longest pause before each piece of work
    int holds = 0;
  };
  explicit FakeStream(Options options);
  ~FakeStream();  // requires an earlier join()
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  [[nodiscard]] int device() const { return options_.device; }

  // Enqueues `work`. `give_up` (may be empty) ends a `work` that blocks; another thread calls it, at most
  // once.
  void enqueue(Work work, Work give_up) EXCLUDES(mutex_);
  // Returns the point after all work that is enqueued now.
  [[nodiscard]] std::uint64_t mark() EXCLUDES(mutex_);
  [[nodiscard]] bool reached(std::uint64_t point) EXCLUDES(mutex_);
  // Blocks until the stream reaches the point. Returns false if it was stopped, or at the deadline.
  [[nodiscard]] bool wait(std::uint64_t point, Deadline deadline) EXCLUDES(mutex_);

  // A test says so.
  void capture(bool begins) { captured_ = begins; }
  [[nodiscard]] bool captured() const { return captured_; }

  // Each hold() keeps the stream from starting more work until its release().
  void hold() EXCLUDES(mutex_);
  void release() EXCLUDES(mutex_);

  // Lets the thread end after it has done all enqueued work.
  void finish() EXCLUDES(mutex_);
  // Drops the enqueued work and makes the running work give up.
  void stop() EXCLUDES(mutex_);
  // Waits for the thread's end. Call it after stop().
  void join();

 private:
  struct Item {
    Work work, give_up;
  };
  using ItemPtr = std::shared_ptr<Item>;

  void run();
  ItemPtr next() EXCLUDES(mutex_);  // returns null when the thread must end
  [[nodiscard]] bool idle() const REQUIRES(mutex_) { return queue_.empty() || holds_ > 0; }
  void lag() REQUIRES(mutex_);

  const Options options_;
  std::minstd_rand random_;  // used by the thread alone
  std::atomic<bool> captured_{false};
  Mutex mutex_;
  CondVar changed_;
  std::deque<ItemPtr> queue_ GUARDED_BY(mutex_);
  ItemPtr running_ GUARDED_BY(mutex_);
  std::uint64_t enqueued_ GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ GUARDED_BY(mutex_) = 0;
  int holds_ GUARDED_BY(mutex_);
  bool finishing_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundelay::doubles
