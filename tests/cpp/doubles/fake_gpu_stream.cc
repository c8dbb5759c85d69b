#include "tests/cpp/doubles/fake_gpu_stream.h"

#include <cassert>
#include <utility>

namespace roundelay::doubles {

FakeStream::FakeStream(Options options)
    : options_(options), random_(options.seed), holds_(options.holds), thread_([this] { run(); }) {}

FakeStream::~FakeStream() { assert(!thread_.joinable()); }

void FakeStream::enqueue(Work work, Work give_up) {
  const MutexLock lock(mutex_);
  if (stopped_) return;
  queue_.push_back(std::make_shared<Item>(Item{std::move(work), std::move(give_up)}));
  ++enqueued_;
  changed_.notify_all();
}

std::uint64_t FakeStream::mark() {
  const MutexLock lock(mutex_);
  return enqueued_;
}

bool FakeStream::reached(std::uint64_t point) {
  const MutexLock lock(mutex_);
  return done_ >= point;
}

bool FakeStream::wait(std::uint64_t point, Deadline deadline) {
  const MutexLock lock(mutex_);
  while (done_ < point && !stopped_ && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  return done_ >= point;
}

void FakeStream::hold() {
  const MutexLock lock(mutex_);
  ++holds_;
}

void FakeStream::release() {
  const MutexLock lock(mutex_);
  assert(holds_ > 0);
  --holds_;
  changed_.notify_all();
}

void FakeStream::finish() {
  const MutexLock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
}

void FakeStream::stop() {
  std::deque<ItemPtr> dropped;
  ItemPtr running;
  {
    const MutexLock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    dropped.swap(queue_);
    running = running_;
    changed_.notify_all();
  }
  if (running && running->give_up) running->give_up();
}

void FakeStream::join() {
  if (thread_.joinable()) thread_.join();
}

void FakeStream::run() {
  while (ItemPtr item = next()) {
    item->work();
    {
      const MutexLock lock(mutex_);
      running_.reset();
    }
    item.reset();  // releases what the work kept alive before anyone can see that it is done
    const MutexLock lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
}

FakeStream::ItemPtr FakeStream::next() {
  const MutexLock lock(mutex_);
  while (!stopped_) {
    while (!stopped_ && idle() && !(finishing_ && queue_.empty())) {
      changed_.wait_until(mutex_, Deadline::never());
    }
    if (queue_.empty()) break;
    lag();
    if (stopped_ || idle()) continue;  // a hold() came meanwhile
    running_ = std::move(queue_.front());
    queue_.pop_front();
    return running_;
  }
  return nullptr;
}

// Pauses, except one time in four: a stream may also be early.
void FakeStream::lag() {
  if (options_.longest_delay <= Duration{0} || random_() % 4 == 0) return;
  const Deadline end = Deadline::after(Duration(random_() % options_.longest_delay.count()));
  while (!stopped_ && !end.passed()) changed_.wait_until(mutex_, end);
}

}  // namespace roundelay::doubles
