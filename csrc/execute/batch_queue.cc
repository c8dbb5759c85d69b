#include "execute/batch_queue.h"

#include <utility>

#include "collective/whole_call.h"
#include "execute/operations/operations.h"

namespace roundelay::execute {

BatchQueue::BatchQueue(std::vector<int> ranks, std::size_t fusion_threshold, submit::TensorTable& table,
                       Completer& completer)
    : ranks_(std::move(ranks)), fusion_threshold_(fusion_threshold), table_(table), completer_(completer) {}

Entries BatchQueue::extract(const negotiate::OrderedOperation& ordered) {
  Entries entries;
  const TimePoint now = steady_now();
  for (const std::string& name : ordered.names) {
    auto entry = table_.extract(name);
    if (!entry) continue;
    entry->times.ordered = now;
    if (steps_of(entry->request.operation) == nullptr) {
      if (ordered.agreed) deliver(*entry, ordered);
      completer_.complete(table_, *entry, Status{});
    } else {
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

// Gives the caller the result of an agreement.
void BatchQueue::deliver(submit::Entry& entry, const negotiate::OrderedOperation& ordered) {
  Agreed agreed = *ordered.agreed;
  for (const int member : ordered.absent) agreed.absent.push_back(ranks_[static_cast<std::size_t>(member)]);
  entry.results->set_agreed(std::move(agreed));
}

void BatchQueue::enqueue(std::uint64_t sequence, const negotiate::OrderedOperation& ordered) {
  const Entries entries = extract(ordered);
  if (ordered.agreed) return;  // members that have joined skip nothing: there is no batch
  Batches batches = cut_into_batches(entries, ordered, static_cast<int>(ranks_.size()), fusion_threshold_);
  if (batches.empty() && !ordered.skipped) return;
  if (!ordered.absent.empty()) {
    auto exchange = std::make_unique<Batch>();
    exchange->steps = ordered.skipped ? &kSkipSteps : &kTellCountSteps;
    exchange->absent = ordered.absent;
    exchange->following = static_cast<std::int64_t>(batches.size());
    batches.push_front(std::move(exchange));
  }
  MutexLock lock(mutex_);
  if (std::exchange(sequence_, sequence) != sequence) next_index_ = 0;
  work_.fetch_add(static_cast<int>(batches.size()), std::memory_order_release);
  for (auto& batch : batches) {
    batch->sequence = sequence;
    batch->index = next_index_++;
    batch->ticket = ordered.ticket;
    batch->ends_tickets = batch == batches.back();
    queue_.push_back(std::move(batch));
  }
}

void BatchQueue::append(std::shared_ptr<submit::Entry> entry) {
  auto batch = std::make_unique<Batch>();
  batch->steps = &kWholeCallSteps;
  batch->tensors.push_back({entry.get(), 0});
  batch->entries.push_back(std::move(entry));
  submit::Entry& own = *batch->entries.front();
  own.unfinished = 1;
  own.times.ordered = steady_now();
  MutexLock lock(mutex_);
  if (!own.call->local) ++sequence_;
  batch->sequence = sequence_;
  collective::options_of(own.call->call).mark.sequence = sequence_;
  own.request.name = "call " + std::to_string(sequence_);
  work_.fetch_add(1, std::memory_order_release);
  queue_.push_back(std::move(batch));
}

std::unique_ptr<Batch> BatchQueue::pop(bool host_only) {
  MutexLock lock(mutex_);
  if (queue_.empty() || (host_only && queue_.front()->on_gpu())) return nullptr;
  std::unique_ptr<Batch> batch = std::move(queue_.front());
  queue_.pop_front();
  return batch;
}

Batches BatchQueue::take_all() {
  MutexLock lock(mutex_);
  return std::exchange(queue_, {});
}

}  // namespace roundelay::execute
