#include "collective/c10d/c10d_transport.h"

#include <algorithm>
#include <system_error>

#include "base/leak.h"

namespace roundelay::collective {

C10dTransport::C10dTransport(std::unique_ptr<platform::ProcessGroup> process_group, const Group& group,
                             std::size_t most_message_bytes)
    : process_group_(std::move(process_group)), group_(group), most_bytes_(most_message_bytes) {}

C10dTransport::~C10dTransport() {
  bool open = false;
  {
    MutexLock lock(mutex_);
    over_ = true;
    open = !slots_.all_free();
  }
  if (open) give_up();
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (open) leak(std::move(process_group_));
}

Result<TransferId> C10dTransport::send(int peer, ConstByteSpan data, int tag) {
  // The process group only reads the bytes.
  const ByteSpan bytes(const_cast<std::byte*>(data.data()), data.size());
  return post(peer, bytes, [&](ByteSpan part) { return process_group_->send(peer, part, tag); });
}

Result<TransferId> C10dTransport::receive(int peer, ByteSpan data, int tag) {
  return post(peer, data, [&](ByteSpan part) { return process_group_->receive(peer, part, tag); });
}

std::pair<TransferId, C10dTransport::Slot*> C10dTransport::take_slot(int peer) {
  MutexLock lock(mutex_);
  const TransferId id = slots_.acquire();
  Slot& slot = slots_[id];
  slot.parts.clear();
  slot.peer = peer;
  return {id, &slot};
}

// The medium has a limit for messages, and knows no empty ones.
Result<TransferId> C10dTransport::post(int peer, ByteSpan data, const PostPart& post_part) {
  const auto [id, slot] = take_slot(peer);
  if (data.empty()) data = ByteSpan(&slot->nothing, 1);
  while (!data.empty()) {
    const ByteSpan part = data.first(std::min(data.size(), most_bytes_));
    Result<WorkPtr> work = post_part(part);
    if (!work.ok()) return failure(*slot, work.status());
    ROUNDELAY_RETURN_IF_ERROR(have_waited(*slot, std::move(work).value()));
    data = data.subspan(part.size());
  }
  return id;
}

Status C10dTransport::failure(const Slot& slot, const Status& cause) const {
  const int rank = group_.ranks[static_cast<std::size_t>(slot.peer)];
  return Status::aborted("the connection to rank " + std::to_string(rank) + " failed: " + cause.message());
}

// Each work gets a free thread. If it had to wait for another work's thread, that work might depend on it.
Status C10dTransport::have_waited(Slot& slot, WorkPtr work) {
  MutexLock lock(mutex_);
  slot.parts.push_back(work);
  ++slot.left;
  queue_.push_back({std::move(work), &slot});
  if (queue_.size() > idle_) {
    try {
      threads_.emplace_back([this] { wait_for_works(); });
    } catch (const std::system_error& error) {
      return Status::aborted(std::string("no thread to wait for a message: ") + error.what());
    }
  }
  changed_.notify_one();
  return {};
}

void C10dTransport::wait_for_works() {
  MutexLock lock(mutex_);
  while (true) {
    ++idle_;
    while (queue_.empty() && !over_) changed_.wait_until(mutex_, Deadline::never());
    --idle_;
    if (queue_.empty()) return;
    const Waited waited = std::move(queue_.front());
    queue_.pop_front();
    mutex_.unlock();
    const Status status = waited.work->wait();
    mutex_.lock();
    if (!status.ok() && waited.slot->error.ok()) waited.slot->error = failure(*waited.slot, status);
    --waited.slot->left;
  }
}

Result<bool> C10dTransport::test(TransferId id) {
  MutexLock lock(mutex_);
  const Slot& slot = slots_[id];
  if (!slot.error.ok()) return slot.error;
  if (slot.left > 0) return false;
  slots_.release(id);
  return true;
}

void C10dTransport::give_up() {
  std::vector<WorkPtr> out;
  {
    MutexLock lock(mutex_);
    for (const Slot& slot : slots_) {
      if (slot.left > 0) out.insert(out.end(), slot.parts.begin(), slot.parts.end());
    }
  }
  for (const WorkPtr& work : out) work->abort();
}

}  // namespace roundelay::collective
