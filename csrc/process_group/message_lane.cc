#include "process_group/message_lane.h"

#include <chrono>
#include <utility>

namespace roundelay::process_group {
namespace {

constexpr Duration kLeaveTimeout = std::chrono::seconds(2);
constexpr Duration kLongestRest = std::chrono::milliseconds(100);
constexpr Duration kCauseTime = std::chrono::seconds(1);

}  // namespace

MessageLane::MessageLane(std::unique_ptr<collective::PointToPoint> messages, Session session)
    : session_(std::move(session)), messages_(std::move(messages)), thread_([this] { run(); }) {}

Status MessageLane::post(Message message) {
  MutexLock lock(mutex_);
  if (stopping_) return Status::aborted("the process group was destroyed");
  using Kind = Message::Kind;
  const Result<collective::MessageId> id =
      message.kind == Kind::kSend      ? messages_->send(message.peer, message.memory, message.tag)
      : message.kind == Kind::kReceive ? messages_->receive(message.peer, message.memory, message.tag)
                                       : messages_->receive_any(message.memory, message.tag);
  if (!id.ok()) return id.status();
  used_ = true;
  posted_.push_back({*id, std::move(message)});
  wake_driver();
  changed_.notify_all();
  return {};
}

// Returns why all messages have to fail; ok if they need not.
Status MessageLane::look_for_fault() {
  if (Status fault = session_.fault(); !fault.ok()) return fault;
  const TimePoint now = steady_now();
  const int left = session_.left_rank();
  for (const auto& [id, message] : posted_) {
    const int peer = messages_->waiting_for(id);
    if (left >= 0 && peer == left) {
      return Status::aborted("rank " + std::to_string(left) + " has left the process group");
    }
    if (message.deadline == Deadline::never() || !message.deadline.passed(now)) continue;
    return Status::aborted("rank " + std::to_string(session_.rank) + " has waited for " +
                           (peer < 0 ? "any rank" : "rank " + std::to_string(peer)) + " in a " +
                           (message.kind == Message::Kind::kSend ? "send" : "receive") + " of " +
                           std::to_string(message.memory.size()) + " bytes, tag " +
                           std::to_string(message.tag) + ", longer than the timeout of the group");
  }
  return {};
}

std::list<MessageLane::Ended> MessageLane::take_ended() {
  std::list<Ended> ended;
  for (auto one = posted_.begin(); one != posted_.end();) {
    Result<std::optional<int>> over = messages_->look(one->id);
    if (over.ok() && !*over) {
      ++one;
      continue;
    }
    ended.push_back({std::move(one->message), over.ok() ? Result<int>(**over) : Result<int>(over.status())});
    one = posted_.erase(one);
  }
  return ended;
}

// Keeps messages that the medium has failed until the session knows the cause, for a second at most: a peer
// that has ended breaks its connections before its reason has come. Returns the others, and those that were
// kept for long enough.
std::list<MessageLane::Ended> MessageLane::with_cause(std::list<Ended> ended) {
  const Status fault = session_.fault();
  const TimePoint now = steady_now();
  for (auto one = ended.begin(); one != ended.end();) {
    const auto next = std::next(one);
    if (one->outcome.status().code() == StatusCode::kAborted) {
      one->failed_at = now;
      failed_.splice(failed_.end(), ended, one);
    }
    one = next;
  }
  for (auto one = failed_.begin(); one != failed_.end();) {
    const auto next = std::next(one);
    if (!fault.ok()) one->outcome = fault;
    if (!fault.ok() || now - one->failed_at > kCauseTime) ended.splice(ended.end(), failed_, one);
    one = next;
  }
  return ended;
}

// A peer may wait for an answer to a message that is over here, and nobody here does. After a fault nobody
// waits for it, and a peer that has died never takes it.
bool MessageLane::idle() const {
  if (!posted_.empty() || !failed_.empty()) return false;
  return !messages_->has_unsent() || !session_.fault().ok();
}

// Moves the messages on. Returns false if none has ended.
bool MessageLane::step() {
  std::list<Ended> ended;
  Status own_fault;
  {
    MutexLock lock(mutex_);
    if (!messages_) return false;
    messages_->progress();
    ended = take_ended();
    if (!posted_.empty()) {
      if (const Status fault = look_for_fault(); !fault.ok()) {
        if (session_.fault().ok()) own_fault = fault;
        messages_->give_up(fault);
        ended.splice(ended.end(), take_ended());
      }
    }
    if (own_fault.ok()) ended = with_cause(std::move(ended));
  }
  if (!own_fault.ok()) session_.fail(own_fault.message());
  for (const Ended& one : ended) one.message.over(one.outcome);
  if (!ended.empty()) changed_.notify_all();
  return !ended.empty();
}

// Ends the pause of who moves the messages.
void MessageLane::wake_driver() {
  if (driven_ && messages_) messages_->wake();
}

// `gives_way`: a caller that comes before the pause need not wait for its end. One that comes later ends it.
void MessageLane::rest(Backoff& backoff, Deadline deadline, bool gives_way) {
  Nap nap;
  {
    MutexLock lock(mutex_);
    if (gives_way && this->gives_way()) return;
    if (messages_) nap = messages_->idle(backoff);
  }
  const Duration left = deadline == Deadline::never() ? kLongestRest : deadline.when() - steady_now();
  nap.at_most(std::max(left, Duration{0})).wait();
}

// Waits until this thread may move the messages. False: `done`, or the deadline, came first; it waits no
// more.
bool MessageLane::take_over(const std::function<bool()>& done, Deadline deadline) {
  MutexLock lock(mutex_);
  wake_driver();
  while (driven_ && !done() && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  if (!std::exchange(driven_, true)) return true;
  // The thread may have seen that a caller wants to move the messages, and sleep.
  --waiters_;
  changed_.notify_all();
  return false;
}

void MessageLane::drive(const std::function<bool()>& done, Deadline deadline) {
  ++waiters_;
  if (!take_over(done, deadline)) return;
  Backoff backoff;
  while (!done() && !deadline.passed()) {
    if (step()) {
      backoff.reset();
    } else {
      rest(backoff, deadline, false);
    }
  }
  --waiters_;
  MutexLock lock(mutex_);
  driven_ = false;
  changed_.notify_all();
}

// The body of the thread. It gives way to callers.
void MessageLane::run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!stopping_ && (driven_ || gives_way())) {
        changed_.wait_until(mutex_, Deadline::never());
      }
      if (stopping_) return;
      driven_ = true;
    }
    Backoff backoff;
    const auto goes_on = [&] {
      MutexLock lock(mutex_);
      return !gives_way();
    };
    while (goes_on()) {
      if (step()) {
        backoff.reset();
      } else {
        rest(backoff, Deadline::never(), true);
      }
    }
    MutexLock lock(mutex_);
    driven_ = false;
    changed_.notify_all();
  }
}

void MessageLane::stop() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    wake_driver();
    changed_.notify_all();
  }
  thread_.join();
  leave();
  // Peers that wait for this member hear of its end now, and not when the last user of the group has gone.
  const std::unique_ptr<collective::PointToPoint> ended = take_messages();
}

std::unique_ptr<collective::PointToPoint> MessageLane::take_messages() {
  MutexLock lock(mutex_);
  return std::move(messages_);
}

void MessageLane::leave() {
  std::list<Ended> ended;
  const Deadline deadline = Deadline::after(kLeaveTimeout);
  Backoff backoff;
  {
    MutexLock lock(mutex_);
    const Status fault = session_.fault();
    const Status why = fault.ok() ? Status::aborted("the process group was destroyed") : fault;
    if (!posted_.empty()) messages_->give_up(why);
    ended = take_ended();
    for (Ended& one : failed_) one.outcome = fault.ok() ? one.outcome : Result<int>(fault);
    ended.splice(ended.end(), failed_);
    if (!used_) return;  // nobody waits for this member's good-bye
  }
  for (const Ended& one : ended) one.message.over(one.outcome);
  while (!deadline.passed() && session_.fault().ok()) {
    {
      MutexLock lock(mutex_);
      messages_->progress();
      const Result<bool> left = messages_->leave();
      if (!left.ok() || *left) return;
    }
    rest(backoff, deadline, false);
  }
}

}  // namespace roundelay::process_group
