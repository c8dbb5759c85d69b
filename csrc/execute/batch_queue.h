// The batches of one lane that were ordered and not yet prepared, in the order that all members follow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "execute/batch.h"
#include "execute/completer.h"
#include "negotiate/participant.h"
#include "submit/table.h"

namespace roundelay::execute {

// Thread-safe. Its lock is innermost: it calls no other class while it holds the lock.
class BatchQueue {
 public:
  // `ranks`: the world ranks of the group. `table` and `completer` outlive the queue.
  BatchQueue(std::vector<int> ranks, std::size_t fusion_threshold, submit::TensorTable& table,
             Completer& completer);

  // Takes the entries that the order names out of the table, cuts them into batches and appends these. Skips
  // names that an abort has failed meanwhile. Completes a join, a process set's change or an agreement at
  // once: the order is all that it needs. Wakes no thread. Any thread calls it, one operation after the
  // other. `sequence` is the order's number.
  void enqueue(std::uint64_t sequence, const negotiate::OrderedOperation& ordered) EXCLUDES(mutex_);
  // Appends the batch of an entry that has a call of its own, and numbers the call. Wakes no thread. Any
  // thread.
  void append(std::shared_ptr<submit::Entry> entry) EXCLUDES(mutex_);
  // Removes the first batch and returns it. Null: there is none, or `host_only` and it is on a GPU.
  [[nodiscard]] std::unique_ptr<Batch> pop(bool host_only) EXCLUDES(mutex_);
  // Removes all batches and returns them.
  [[nodiscard]] Batches take_all() EXCLUDES(mutex_);

  // Returns whether batches are queued, or were taken and are not over.
  [[nodiscard]] bool has_work() const { return work_.load(std::memory_order_acquire) > 0; }
  // Says that `batches` of the batches that were taken are over. Call it after their handles are completed: a
  // waiter whose handle is not done and that sees no work may sleep in the channel, where the lane does not
  // wake it.
  void forget(std::size_t batches) { work_.fetch_sub(static_cast<int>(batches), std::memory_order_release); }

 private:
  [[nodiscard]] Entries extract(const negotiate::OrderedOperation& ordered);
  void deliver(submit::Entry& entry, const negotiate::OrderedOperation& ordered);

  const std::vector<int> ranks_;
  const std::size_t fusion_threshold_;
  submit::TensorTable& table_;
  Completer& completer_;
  std::atomic<int> work_{0};
  Mutex mutex_;
  Batches queue_ GUARDED_BY(mutex_);
  std::uint64_t sequence_ GUARDED_BY(mutex_) = 0;    // the last order's
  std::uint32_t next_index_ GUARDED_BY(mutex_) = 0;  // that of its next batch
};

}  // namespace roundelay::execute
