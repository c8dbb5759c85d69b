// A stream of the fake device: a queue of work, and a thread that does it late.
#pragma once

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
    Duration longest_delay{0};  // before each piece of work
    int holds = 0;
  };
  explicit FakeStream(Options options);
  ~FakeStream();  // after join()
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  [[nodiscard]] int device() const { return options_.device; }

  // `give_up` (may be empty) ends a `work` that is blocked; called from another thread, at most once.
  void enqueue(Work work, Work give_up) EXCLUDES(mutex_);
  // The point behind all that is enqueued now.
  [[nodiscard]] std::uint64_t mark() EXCLUDES(mutex_);
  [[nodiscard]] bool reached(std::uint64_t point) EXCLUDES(mutex_);
  // Blocks until the point is reached. False: the stream was stopped, or it is late.
  [[nodiscard]] bool wait(std::uint64_t point, Deadline deadline) EXCLUDES(mutex_);

  // While anyone holds it, it begins no further work.
  void hold() EXCLUDES(mutex_);
  void release() EXCLUDES(mutex_);

  // What is enqueued is still done, then the thread ends.
  void finish() EXCLUDES(mutex_);
  // What is enqueued is dropped, what is being done is told to give up.
  void stop() EXCLUDES(mutex_);
  // After stop().
  void join();

 private:
  struct Item {
    Work work, give_up;
  };
  using ItemPtr = std::shared_ptr<Item>;

  void run();
  ItemPtr next() EXCLUDES(mutex_);  // null: the end
  [[nodiscard]] bool idle() const REQUIRES(mutex_) { return queue_.empty() || holds_ > 0; }
  void lag() REQUIRES(mutex_);

  const Options options_;
  std::minstd_rand random_;  // of the thread
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
