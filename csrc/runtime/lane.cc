#include "runtime/lane.h"

#include <utility>

#include "runtime/operations/operations.h"

namespace roundelay::runtime {
namespace {

constexpr std::size_t kDepth = 2;                 // batches with a fusion buffer of their own
constexpr double kSlowLinkBytesPerSecond = 10e6;  // allowed beyond progress_timeout: this rate, at worst

Deadline progress_deadline(TimePoint now, Duration timeout, std::size_t bytes) {
  const std::chrono::duration<double> transfer(static_cast<double>(bytes) / kSlowLinkBytesPerSecond);
  return Deadline::at(now + timeout + std::chrono::duration_cast<Duration>(transfer));
}

}  // namespace

Lane::Lane(LaneId id, std::unique_ptr<collective::Fabric> fabric, complete::Completer& completer,
           Timeline& timeline, const AbortToken& abort, LaneOptions options, Faults faults)
    : id_(id),
      fabric_(std::move(fabric)),
      completer_(completer),
      timeline_(timeline),
      abort_(abort),
      options_(options),
      faults_(std::move(faults)) {
  for (std::size_t i = 0; i < kDepth; ++i) buffers_.emplace_back(options_.fusion_threshold);
}

Lane::~Lane() {
  // The medium may still write to what an unfinished call was given.
  if (!fabric_->poisoned()) return;
  for (fuse::FusionBuffer& buffer : buffers_) buffer.leak();
}

void Lane::enqueue(std::uint64_t sequence, const std::vector<std::string>& names) {
  auto batch = std::make_unique<Batch>();
  batch->sequence = sequence;
  const TimePoint now = steady_now();
  for (const std::string& name : names) {
    auto entry = table_.extract(name);
    if (!entry) continue;  // failed by an abort meanwhile
    entry->stamps.ordered = now;
    batch->entries.push_back(std::move(entry));
  }
  if (batch->entries.empty()) return;
  MutexLock lock(mutex_);
  if (!queue_.empty() && queue_.back()->sequence == sequence) batch->index = queue_.back()->index + 1;
  queue_.push_back(std::move(batch));
  work_.fetch_add(1, std::memory_order_release);
}

bool Lane::step() {
  if (abort_.raised()) return fail_everything();
  if (faulted_) return false;
  bool moved = start_prepared();
  moved = prepare_next() || moved;
  return test_running() || moved;
}

bool Lane::prepare_next() {
  if (prepared_) return false;
  std::unique_ptr<Batch> batch;
  {
    MutexLock lock(mutex_);
    if (queue_.empty()) return false;
    batch = std::move(queue_.front());
    queue_.pop_front();
  }
  const TimePoint begin = steady_now();
  fuse::FusionBuffer& buffer = buffers_[next_buffer_];
  const Status prepared = steps_of(batch->request().operation).prepare(*batch, fabric_->group(), buffer);
  if (batch->fusion != nullptr) {
    next_buffer_ = (next_buffer_ + 1) % buffers_.size();
    timeline_.record_span(Track::kCopy, "pack", begin, steady_now(), batch->bytes());
  }
  prepared_ = std::move(batch);
  if (!prepared.ok()) on_error(*prepared_, prepared);
  return true;
}

bool Lane::start_prepared() {
  if (running_ || !prepared_) return false;
  running_ = std::move(prepared_);
  Batch& batch = *running_;
  batch.started = steady_now();
  for (const auto& entry : batch.entries) entry->stamps.started = batch.started;
  batch.call.deadline = progress_deadline(batch.started, options_.progress_timeout, batch.call.buffer.bytes);
  batch.call.abort = &abort_;
  auto pending = fabric_->start(batch.call);
  if (pending.ok()) {
    batch.pending = std::move(pending).value();
  } else {
    on_error(batch, pending.status());
  }
  return true;
}

bool Lane::test_running() {
  if (!running_ || faulted_) return false;
  const Result<bool> done = running_->pending->test();
  if (!done.ok()) {
    on_error(*running_, done.status());
    return true;
  }
  if (!*done) return false;
  const auto batch = std::move(running_);
  finish(*batch);
  return true;
}

void Lane::finish(Batch& batch) {
  const TimePoint reduced = steady_now();
  const std::size_t bytes = batch.bytes();
  const auto tensors = static_cast<std::uint32_t>(batch.entries.size());
  steps_of(batch.request().operation).finish(batch);
  if (batch.fusion != nullptr) timeline_.record_span(Track::kCopy, "unpack", reduced, steady_now(), bytes);
  if (timeline_.enabled()) {
    CollectiveSpan span{batch.request().operation,
                        batch.request().dtype,
                        batch.sequence,
                        batch.index,
                        tensors,
                        bytes,
                        {},
                        batch.started,
                        reduced};
    for (std::size_t i = 0; i < std::min<std::size_t>(tensors, span.names.size()); ++i) {
      span.names[i] = batch.entries[i]->request.name;
    }
    timeline_.record_collective(span);
  }
  counters_.operations += 1;
  counters_.tensors += tensors;
  counters_.bytes += static_cast<std::int64_t>(bytes);
  if (tensors > 1) counters_.fused_tensors += tensors;
  for (auto& entry : batch.entries) completer_.complete(table_, std::move(entry), Status{});
  forget_work(1);
}

void Lane::on_error(const Batch& batch, const Status& why) {
  if (std::exchange(faulted_, true) || abort_.raised()) return;
  const int peer = culprit(batch);
  if (batch.call.deadline.passed()) {
    faults_.stuck({id_, batch.sequence, peer, describe(batch)});
    return;
  }
  const int self = fabric_->group().world_rank();
  faults_.fault({peer >= 0 ? peer : self, "rank " + std::to_string(self) + " failed inside " +
                                              describe(batch) + ": " + why.message()});
}

int Lane::culprit(const Batch& batch) const {
  const int member = batch.pending ? batch.pending->waiting_for() : -1;
  return member < 0 ? -1 : fabric_->group().ranks[static_cast<std::size_t>(member)];
}

std::string Lane::describe(const Batch& batch) const {
  std::string text = std::string(name_of(batch.request().operation)) + " of '" + batch.request().name + "'";
  if (batch.entries.size() > 1) text += " and " + std::to_string(batch.entries.size() - 1) + " more";
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(steady_now() - batch.started);
  return text + " (" + std::to_string(batch.bytes()) + " bytes, " + std::to_string(waited.count()) +
         " s in it; ROUNDELAY_PROGRESS_TIMEOUT)";
}

bool Lane::fail_everything() {
  std::deque<std::unique_ptr<Batch>> batches;
  {
    MutexLock lock(mutex_);
    batches.swap(queue_);
  }
  if (prepared_) batches.push_front(std::move(prepared_));
  if (running_) batches.push_front(std::move(running_));
  if (batches.empty()) return false;
  const Status cause = abort_.cause();
  for (const auto& batch : batches) fail(*batch, cause);
  forget_work(batches.size());
  return true;
}

void Lane::fail(Batch& batch, const Status& why) {
  // One more test lets the call see the abort word and give its transfers up.
  if (batch.pending) static_cast<void>(batch.pending->test());
  batch.pending.reset();
  for (auto& entry : batch.entries) completer_.complete(table_, std::move(entry), why);
}

// After the handles: who waits for one that is not done and sees no work here may sleep in the channel, where
// nobody would wake it.
void Lane::forget_work(std::size_t batches) {
  work_.fetch_sub(static_cast<int>(batches), std::memory_order_release);
}

void Lane::wait_for_work(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!has_work() && !roused_ && !deadline.passed()) work_came_.wait_until(mutex_, deadline);
  roused_ = false;
}

void Lane::rouse() {
  MutexLock lock(mutex_);
  roused_ = true;
  work_came_.notify_all();
}

}  // namespace roundelay::runtime
