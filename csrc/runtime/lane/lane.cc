#include "runtime/lane/lane.h"

#include <algorithm>
#include <utility>

#include "base/leak.h"
#include "fuse/plan.h"
#include "runtime/lane/operations/operations.h"
#include "wire/describe.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kLongestSleep = std::chrono::milliseconds(100);
constexpr double kSlowLinkBytesPerSecond = 10e6;  // allowed beyond progress_timeout: this rate, at worst

Deadline progress_deadline(TimePoint now, Duration timeout, std::size_t bytes) {
  const std::chrono::duration<double> transfer(static_cast<double>(bytes) / kSlowLinkBytesPerSecond);
  return Deadline::at(now + timeout + std::chrono::duration_cast<Duration>(transfer));
}

// Only sums of one dtype, in memory of one kind, travel together; each Adasum has dot products of its own,
// and what is in a region need not be packed.
std::uint64_t fusion_class(const Piece& piece) {
  const wire::Request& request = piece.entry->request;
  const bool fusable = request.operation == Operation::kAllreduce && request.reduce_op != ReduceOp::kAdasum &&
                       request.region.key == 0;
  if (!fusable) return fuse::kNoFusion;
  return static_cast<std::uint64_t>(piece.dtype()) + kDTypeCount * static_cast<std::uint64_t>(request.device);
}

}  // namespace

Lane::Lane(LaneId id, std::unique_ptr<collective::Fabric> fabric, complete::Completer& completer,
           timeline::Timeline& timeline, const AbortToken& abort, LaneOptions options, Faults faults)
    : id_(id),
      group_(fabric->group()),
      make_region_(fabric->capabilities().make_region),
      fabric_work_(fabric->capabilities().work),
      fabric_(std::move(fabric)),
      completer_(completer),
      timeline_(timeline),
      abort_(abort),
      options_(std::move(options)),
      faults_(std::move(faults)),
      announcements_(options_.schedule_lock ? fabric_->capabilities().announcements : nullptr),
      table_(announcements_),
      host_(std::make_unique<HostBuffers>(*fabric_, options_.fusion_threshold)) {
  if (!options_.gpu) return;
  gpu_ = std::make_unique<GpuBuffers>(options_.gpu->parts, *fabric_, options_.gpu->fabric);
}

Lane::~Lane() { close_fabric(); }

void Lane::close_fabric() {
  if (!fabric_) return;
  // The medium may still write to what an unfinished call was given.
  if (fabric_->poisoned()) host_->leak_buffers();
  gpu_.reset();
  std::unique_ptr<collective::Fabric> last;  // freed without the lock
  MutexLock lock(mutex_);
  last = std::move(fabric_);
}

Lane::Entries Lane::extract(const std::vector<std::string>& names) {
  Entries entries;
  const TimePoint now = steady_now();
  for (const std::string& name : names) {
    auto entry = table_.extract(name);
    if (!entry) continue;  // failed by an abort meanwhile
    entry->tickets.ordered = now;
    if (steps_of(entry->request.operation) == nullptr) {
      completer_.complete(table_, *entry, Status{});  // to be agreed upon was all
    } else {
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

// Of what may not travel together, or would be too large, each gets a batch of its own: the same ones on all
// members.
Lane::Batches Lane::cut(const Entries& entries, const negotiate::Execution& execution) const {
  std::vector<std::pair<const std::shared_ptr<submit::Entry>*, std::size_t>> pieces;
  std::vector<fuse::Candidate> candidates;
  for (const auto& entry : entries) {
    for (std::size_t part = 0; part < std::max<std::size_t>(1, entry->parts.size()); ++part) {
      pieces.emplace_back(&entry, part);
      const Piece piece{entry.get(), part};
      candidates.push_back({piece.bytes(), fusion_class(piece)});
    }
  }
  Batches batches;
  for (const fuse::FusedIndices& indices : fuse::plan(candidates, {options_.fusion_threshold})) {
    auto batch = std::make_unique<Batch>();
    for (const std::size_t i : indices) {
      const auto& [entry, part] = pieces[i];
      batch->pieces.push_back({entry->get(), part});
      if (batch->entries.empty() || batch->entries.back() != *entry) {
        batch->entries.push_back(*entry);
        ++(*entry)->unfinished;
      }
    }
    batch->steps = steps_of(batch->request().operation);
    batch->absent = execution.absent;
    if (!execution.extents.empty()) {
      const auto members = static_cast<std::ptrdiff_t>(group_.size());
      const auto first = execution.extents.begin() + static_cast<std::ptrdiff_t>(indices.front()) * members;
      batch->extents.assign(first, first + members);
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

void Lane::enqueue(std::uint64_t sequence, const negotiate::Execution& execution) {
  const Entries entries = extract(execution.names);
  Batches batches = cut(entries, execution);
  if (batches.empty() && !execution.skipped) return;
  if (!execution.absent.empty()) {
    auto exchange = std::make_unique<Batch>();
    exchange->steps = execution.skipped ? &kSkipSteps : &kAnnounceSteps;
    exchange->absent = execution.absent;
    exchange->sent = {static_cast<std::int64_t>(batches.size())};
    batches.push_front(std::move(exchange));
  }
  MutexLock lock(mutex_);
  std::uint32_t index = 0;
  if (!queue_.empty() && queue_.back()->sequence == sequence) index = queue_.back()->index + 1;
  work_.fetch_add(static_cast<int>(batches.size()), std::memory_order_release);
  for (auto& batch : batches) {
    batch->sequence = sequence;
    batch->index = index++;
    batch->ticket = execution.ticket;
    batch->ends_tickets = batch == batches.back();
    queue_.push_back(std::move(batch));
  }
}

bool Lane::step() {
  if (abort_.raised()) return fail_everything();
  if (faulted_) return false;
  bool moved = enter();
  moved = start_prepared() || moved;
  moved = prepare_next() || moved;
  moved = test_running() || moved;
  if (!enqueued_.empty()) look_at_device();
  return moved;
}

collective::Nap Lane::idle(collective::Backoff& backoff) {
  const bool waits_for_peers = running_ && !faulted_ && !abort_.raised();
  if (waits_for_peers) return running_->pending->idle(backoff);
  const collective::Nap nap = backoff.next();
  if (!nap.sleeps() || !goes_by_schedule()) return nap;
  const std::uint32_t seen = announcements_->arm(Announcements::Sleeper::kDriver);
  if (may_enter() || !goes_by_schedule() || !look_after_schedule()) return {};
  return {announcements_->doorbell(Announcements::Sleeper::kDriver), seen, kLongestSleep};
}

bool Lane::prepare_next() {
  if (prepared_) return false;
  std::unique_ptr<Batch> batch;
  {
    MutexLock lock(mutex_);
    if (queue_.empty()) return false;
    // A GPU has a queue of its own; what is enqueued there now would come before the end of what is running.
    if (running_ && queue_.front()->on_gpu()) return false;
    batch = std::move(queue_.front());
    queue_.pop_front();
  }
  const TimePoint begin = steady_now();
  const Status prepared = prepare(*batch);
  record_copy(*batch, "pack", begin);
  prepared_ = std::move(batch);
  if (!prepared.ok()) on_error(*prepared_, prepared);
  return true;
}

DeviceBuffers& Lane::buffers_of(const Batch& batch) const {
  if (batch.on_gpu()) return *gpu_;
  return *host_;
}

Status Lane::prepare(Batch& batch) {
  if (batch.on_gpu()) {
    ROUNDELAY_RETURN_IF_ERROR(gpu_->take_in(batch));
    if (timeline_.enabled()) batch.device_began = gpu_->mark_time();
  }
  return batch.steps->prepare(batch, buffers_of(batch));
}

bool Lane::start_prepared() {
  if (running_ || !prepared_ || !may_go(*prepared_)) return false;
  running_ = std::move(prepared_);
  running_->started = steady_now();
  for (const auto& entry : running_->entries) {
    if (entry->tickets.started == TimePoint{}) entry->tickets.started = running_->started;
  }
  start(*running_);
  return true;
}

void Lane::start(Batch& batch) {
  const std::size_t bytes = std::max(collective::result_bytes(batch.call), batch.bytes());
  collective::CallOptions& options = collective::options_of(batch.call);
  options.deadline = progress_deadline(steady_now(), patience(batch), bytes);
  options.abort = &abort_;
  DeviceBuffers& buffers = options.stream == nullptr ? *host_ : buffers_of(batch);
  auto pending = buffers.fabric().start(batch.call);
  if (pending.ok()) {
    batch.pending = std::move(pending).value();
  } else {
    on_error(batch, pending.status());
  }
}

bool Lane::test_running() {
  if (!running_ || faulted_) return false;
  Batch& batch = *running_;
  const Result<bool> done = batch.pending->test();
  if (!done.ok()) {
    on_error(batch, done.status());
    return true;
  }
  if (!*done) return false;
  if (batch.steps->next != nullptr) {
    const Result<bool> more = batch.steps->next(batch, buffers_of(batch));
    if (!more.ok()) {
      on_error(batch, more.status());
      return true;
    }
    if (*more) {
      start(batch);
      return true;
    }
  }
  const TimePoint reduced = steady_now();
  if (const Status finished = finish(batch); !finished.ok()) {
    on_error(batch, finished);
  } else {
    conclude(std::move(running_), reduced);
  }
  return true;
}

Status Lane::finish(Batch& batch) {
  if (batch.steps->finish != nullptr) {
    ROUNDELAY_RETURN_IF_ERROR(batch.steps->finish(batch, buffers_of(batch)));
  }
  return batch.on_gpu() ? hand_over(batch) : Status{};
}

void Lane::conclude(std::unique_ptr<Batch> batch, TimePoint reduced) {
  leave_ticket(*batch);
  record(*batch, reduced);
  release(*batch, Status{});
  if (batch->on_gpu()) watch(std::move(batch));
  forget_work(1);
}

void Lane::release(Batch& batch, const Status& outcome) {
  for (auto& entry : batch.entries) {
    if (--entry->unfinished == 0) completer_.complete(table_, *entry, outcome);
  }
}

void Lane::on_error(const Batch& batch, const Status& why) {
  if (std::exchange(faulted_, true) || abort_.raised()) return;
  const int peer = culprit(batch);
  if (collective::options_of(batch.call).deadline.passed()) {
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(steady_now() - batch.started);
    const std::string size = std::to_string(batch.bytes()) + " bytes, " + std::to_string(waited.count());
    faults_.stuck(
        {id_, batch.sequence, peer, describe(batch) + " (" + size + " s in it; ROUNDELAY_PROGRESS_TIMEOUT)"});
    return;
  }
  const int self = group_.world_rank();
  faults_.fault({peer >= 0 ? peer : self, "rank " + std::to_string(self) + " failed inside " +
                                              describe(batch) + " (" + std::to_string(batch.bytes()) +
                                              " bytes): " + why.message()});
}

int Lane::culprit(const Batch& batch) const {
  const int member = batch.pending ? batch.pending->waiting_for() : -1;
  return member < 0 ? -1 : group_.ranks[static_cast<std::size_t>(member)];
}

std::string Lane::describe(const Batch& batch) const {
  if (batch.entries.empty()) return "an operation that members skip after join()";
  std::string text = wire::describe(batch.request());
  if (batch.entries.size() > 1) text += " and " + std::to_string(batch.entries.size() - 1) + " more";
  return text;
}

bool Lane::fail_everything() {
  Batches batches;
  {
    MutexLock lock(mutex_);
    batches.swap(queue_);
  }
  if (prepared_) batches.push_front(std::move(prepared_));
  const bool on_gpu = running_ && running_->on_gpu();
  if (running_) batches.push_front(std::move(running_));
  const bool gave_up = give_up_device(on_gpu);
  if (batches.empty()) return gave_up;
  const Status cause = abort_.cause();
  for (const auto& batch : batches) fail(*batch, cause);
  forget_work(batches.size());
  return true;
}

void Lane::fail(Batch& batch, const Status& why) {
  // One more test lets the call see the abort word and give its transfers up.
  if (batch.pending) static_cast<void>(batch.pending->test());
  batch.pending.reset();
  if (fabric_->poisoned()) {
    leak(std::move(batch.sent));
    leak(std::move(batch.received));
  }
  release(batch, why);
}

// After the handles: who waits for one that is not done and sees no work here may sleep in the channel, where
// nobody would wake it.
void Lane::forget_work(std::size_t batches) {
  work_.fetch_sub(static_cast<int>(batches), std::memory_order_release);
}

void Lane::wait_for_work(Deadline deadline) {
  if (table_.scheduled()) return wait_for_announcements(deadline);
  MutexLock lock(mutex_);
  while (!has_work() && !woken_ && !deadline.passed()) work_came_.wait_until(mutex_, deadline);
  woken_ = false;
}

void Lane::wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  work_came_.notify_all();
  if (announcements_) announcements_->wake();
  if (fabric_ && fabric_->capabilities().waker != nullptr) fabric_->capabilities().waker->wake();
}

}  // namespace roundelay::runtime
