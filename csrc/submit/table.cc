#include "submit/table.h"

#include <algorithm>

#include "wire/describe.h"

namespace roundelay::submit {
namespace {

// The response cache keeps none of these: their requests differ between ranks or from time to time.
bool differs_each_time(Operation operation) {
  const OperationTraits& traits = traits_of(operation);
  return traits.rows_may_differ || traits.differs_each_time;
}

}  // namespace

std::string Entry::describe() const { return wire::describe(request); }

void TensorTable::name_if_unnamed(wire::Request& request) {
  if (request.operation == Operation::kJoin) request.name = kJoinName;
  if (!request.name.empty()) return;
  const auto operation = static_cast<std::size_t>(request.operation);
  request.unnamed = ++unnamed_[operation];
  request.name = std::string(name_of(request.operation)) + ".noname." + std::to_string(request.unnamed);
  request.cacheable = false;
}

// Returns why this rank refuses the request without telling the peers. Empty: it does not.
std::string TensorTable::refusal_of(const wire::Request& request) const {
  if (request.operation == Operation::kJoin) return {};
  if (joined_) {
    return wire::describe(request) +
           ": this rank has joined and has no part in anything until all ranks have; "
           "wait for its join() to return first";
  }
  if (request.name == kJoinName)
    return wire::describe(request) + ": this is the name of every join; choose another";
  return {};
}

Status TensorTable::refuse_if_closed(const wire::Request& request) const {
  if (closed_.ok()) return {};
  return {closed_.code(), closed_.message() + " (" + wire::describe(request) + " was not started)"};
}

Result<complete::Handle> TensorTable::admit(Entry& entry, complete::HandleTable& handles) {
  MutexLock held(mutex_);
  ROUNDELAY_RETURN_IF_ERROR(refuse_if_closed(entry.request));
  entry.handle = handles.allocate(entry.times.submitted);
  return entry.handle;
}

Result<complete::Handle> TensorTable::add(Entry entry, complete::HandleTable& handles) {
  MutexLock held(mutex_);
  wire::Request& request = entry.request;
  ROUNDELAY_RETURN_IF_ERROR(refuse_if_closed(request));
  if (std::string why = refusal_of(request); !why.empty()) return Status::invalid(std::move(why));
  name_if_unnamed(request);
  if (differs_each_time(request.operation)) request.cacheable = false;
  if (entries_.contains(request.name)) {
    wire::Request failed = request;
    failed.error = wire::describe(failed) +
                   ": an operation with this name is still in flight on this rank; "
                   "synchronize it first, or give each tensor a name of its own";
    take_in(failed, {});
    return Status::invalid(failed.error);
  }
  if (request.operation == Operation::kJoin) joined_ = true;
  entry.handle = handles.allocate(entry.times.submitted);
  const complete::Handle handle = entry.handle;
  const auto filed = std::make_shared<Entry>(std::move(entry));
  entries_.emplace(filed->request.name, filed);
  take_in(filed->request, filed->values);
  return handle;
}

void TensorTable::add_error(wire::Request request) {
  MutexLock held(mutex_);
  if (!closed_.ok() || !refusal_of(request).empty()) return;
  name_if_unnamed(request);
  take_in(request, {});
}

void TensorTable::joined(const std::vector<std::uint64_t>& counters) {
  MutexLock held(mutex_);
  for (std::size_t i = 0; i < std::min(counters.size(), unnamed_.size()); ++i) unnamed_[i] = counters[i];
  joined_ = false;
}

void TensorTable::join_failed(const std::vector<std::uint64_t>& counters) {
  MutexLock held(mutex_);
  for (std::size_t i = 0; i < std::min(counters.size(), unnamed_.size()); ++i)
    unnamed_[i] = std::max(unnamed_[i], counters[i]);
}

void TensorTable::drain(std::vector<wire::Submission>& out) {
  out.clear();
  MutexLock held(mutex_);
  std::swap(out, queue_);
}

bool TensorTable::anything_queued() const {
  MutexLock held(mutex_);
  return !queue_.empty();
}

std::shared_ptr<Entry> TensorTable::extract(const std::string& name) {
  MutexLock held(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : std::move(found->second);
}

void TensorTable::release(const std::string& name) {
  MutexLock held(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second != nullptr) return;
  entries_.erase(found);
  if (name == kJoinName) joined_ = false;
}

std::vector<std::shared_ptr<Entry>> TensorTable::close(Status why) {
  MutexLock held(mutex_);
  if (closed_.ok()) closed_ = std::move(why);
  std::vector<std::shared_ptr<Entry>> all;
  all.reserve(entries_.size());
  for (auto& [name, entry] : entries_) {
    if (entry) all.push_back(std::move(entry));
  }
  queue_.clear();
  schedule_.end();
  return all;
}

// The submitting thread calls it after it has filed the entry: so the table has an entry before a rank can
// enter it.
void TensorTable::take_in(const wire::Request& request, const std::string& values) {
  if (!schedule_.file(request, values)) queue_.emplace_back(request, values);
}

std::size_t TensorTable::in_flight() const {
  MutexLock held(mutex_);
  return entries_.size();
}

// -- the schedule lock

bool TensorTable::can_lock() const {
  MutexLock held(mutex_);
  return schedule_.can_lock();
}

lock::Relay* TensorTable::relay() const {
  MutexLock held(mutex_);
  return schedule_.relay();
}

bool TensorTable::all_announced(std::uint64_t until) const {
  MutexLock held(mutex_);
  return schedule_.all_announced(until);
}

void TensorTable::begin_schedule(std::uint64_t number, const lock::ScheduleLock::Operations& operations,
                                 std::vector<wire::Submission> returned) {
  MutexLock held(mutex_);
  if (!closed_.ok()) return;
  schedule_.begin(number, operations);
  returned.insert(returned.end(), queue_.begin(), queue_.end());
  queue_.clear();
  for (const wire::Submission& submission : returned) take_in(submission.request, submission.values);
}

void TensorTable::freeze() {
  MutexLock held(mutex_);
  schedule_.freeze();
}

std::optional<std::uint64_t> TensorTable::frozen_after() const {
  MutexLock held(mutex_);
  return schedule_.frozen_after();
}

void TensorTable::end_schedule() {
  MutexLock held(mutex_);
  const std::vector<wire::Submission> waiting = schedule_.end();
  queue_.insert(queue_.begin(), waiting.begin(), waiting.end());
}

bool TensorTable::waited_for(complete::Handle handle) {
  MutexLock held(mutex_);
  if (!blocked(handle)) return false;
  schedule_.freeze();
  return true;
}

// Returns whether the operation comes after one that is not wholly submitted here.
bool TensorTable::blocked(complete::Handle handle) const {
  if (!schedule_.any_blocked()) return false;
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& filed) {
    const auto& [name, entry] = filed;
    return entry != nullptr && entry->handle == handle && schedule_.blocked(name);
  });
}

bool TensorTable::may_enter() const {
  if (!scheduled()) return false;
  MutexLock held(mutex_);
  return schedule_.may_enter();
}

std::optional<lock::Entered> TensorTable::enter() {
  if (!scheduled()) return std::nullopt;
  MutexLock held(mutex_);
  return schedule_.enter();
}

std::optional<lock::Entered> TensorTable::enter_before(std::uint64_t until) {
  MutexLock held(mutex_);
  return schedule_.enter_before(until);
}

Deadline TensorTable::look(TimePoint now) {
  MutexLock held(mutex_);
  return schedule_.look(now);
}

}  // namespace roundelay::submit
