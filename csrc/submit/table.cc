#include "submit/table.h"

namespace roundelay::submit {

void TensorTable::name_if_unnamed(wire::Request& request) {
  if (!request.name.empty()) return;
  const auto operation = static_cast<std::size_t>(request.operation);
  request.name = std::string(name_of(request.operation)) + ".noname." + std::to_string(++unnamed_[operation]);
  request.cacheable = false;
}

Result<Handle> TensorTable::add(Entry entry, HandleTable& handles) {
  MutexLock lock(mutex_);
  if (!closed_.ok()) return closed_;
  name_if_unnamed(entry.request);
  if (entries_.contains(entry.request.name)) {
    wire::Request failed = entry.request;
    failed.error = std::string(name_of(failed.operation)) + " of '" + failed.name +
                   "': an operation with this name is still in flight on this rank; "
                   "synchronize it first, or give each tensor a name of its own";
    queue_.push_back(failed);
    return Status::invalid(failed.error);
  }
  entry.handle = handles.allocate();
  const Handle handle = entry.handle;
  queue_.push_back(entry.request);
  std::string name = entry.request.name;
  entries_.emplace(std::move(name), std::make_unique<Entry>(std::move(entry)));
  return handle;
}

void TensorTable::add_error(wire::Request request) {
  MutexLock lock(mutex_);
  if (!closed_.ok()) return;
  name_if_unnamed(request);
  queue_.push_back(std::move(request));
}

void TensorTable::drain(std::vector<wire::Request>& out) {
  out.clear();
  MutexLock lock(mutex_);
  std::swap(out, queue_);
}

bool TensorTable::anything_queued() const {
  MutexLock lock(mutex_);
  return !queue_.empty();
}

std::unique_ptr<Entry> TensorTable::extract(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : std::move(found->second);
}

void TensorTable::release(const std::string& name) {
  MutexLock lock(mutex_);
  entries_.erase(name);
}

std::vector<std::unique_ptr<Entry>> TensorTable::close(Status why) {
  MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = std::move(why);
  std::vector<std::unique_ptr<Entry>> all;
  all.reserve(entries_.size());
  for (auto& [name, entry] : entries_) {
    if (entry) all.push_back(std::move(entry));
  }
  queue_.clear();
  return all;
}

std::size_t TensorTable::in_flight() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace roundelay::submit
