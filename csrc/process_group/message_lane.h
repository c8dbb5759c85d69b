// Moves a group's messages between two members, beside its collectives: a caller that waits moves them
// itself, and a thread moves those for which nobody waits.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "base/annotations.h"
#include "base/backoff.h"
#include "base/status.h"
#include "collective/point_to_point/point_to_point.h"

namespace roundelay::process_group {

// Thread-safe.
class MessageLane {
 public:
  using Tag = collective::MessageTag;
  // What the lane needs of the group's session.
  struct Session {
    std::function<Status()> fault;                 // ok, or why communication is over
    std::function<int()> left_rank;                // Context::left_rank()
    std::function<void(const std::string&)> fail;  // ends communication for all members
    int rank;
  };
  // A message, and what its end does. The lane calls `over` once, without a lock: with the peer, or the
  // error.
  struct Message {
    enum class Kind : unsigned char { kSend, kReceive, kReceiveAny };
    Kind kind = Kind::kSend;
    int peer = collective::kAnyPeer;
    ByteSpan memory{};  // stays until `over`, and for ever after an error that is not kMismatch
    Tag tag = 0;
    Deadline deadline = Deadline::never();
    std::function<void(const Result<int>&)> over{};
  };

  MessageLane(std::unique_ptr<collective::PointToPoint> messages, Session session);
  ~MessageLane() { stop(); }
  MessageLane(const MessageLane&) = delete;
  MessageLane& operator=(const MessageLane&) = delete;

  // Posts a message. Errors: as PointToPoint::send(). A message that passes its deadline ends communication
  // for all: its peer may have matched it.
  Status post(Message message) EXCLUDES(mutex_);
  // Moves messages until `done` is true, or the deadline. If another thread does so, sleeps meanwhile.
  void drive(const std::function<bool()>& done, Deadline deadline) EXCLUDES(mutex_);
  // Tells the peers that this member posts nothing more, and ends the thread. Later calls do nothing.
  void stop() EXCLUDES(mutex_);

 private:
  struct Posted {
    collective::MessageId id;
    Message message;
  };
  struct Ended {
    Message message;
    Result<int> outcome;
    TimePoint failed_at{};
  };

  void run();
  bool step() EXCLUDES(mutex_);
  void rest(Backoff& backoff, Deadline deadline, bool gives_way) EXCLUDES(mutex_);
  void wake_driver() REQUIRES(mutex_);
  std::list<Ended> take_ended() REQUIRES(mutex_);
  std::list<Ended> with_cause(std::list<Ended> ended) REQUIRES(mutex_);
  // Returns whether there is nothing to move on.
  [[nodiscard]] bool idle() const REQUIRES(mutex_);
  // Returns whether the thread leaves the messages alone, or to a caller.
  [[nodiscard]] bool gives_way() const REQUIRES(mutex_) { return stopping_ || waiters_ > 0 || idle(); }
  [[nodiscard]] Status look_for_fault() REQUIRES(mutex_);
  std::unique_ptr<collective::PointToPoint> take_messages() EXCLUDES(mutex_);
  bool take_over(const std::function<bool()>& done, Deadline deadline) EXCLUDES(mutex_);
  void leave() EXCLUDES(mutex_);

  const Session session_;
  std::atomic<int> waiters_{0};  // callers that drive, or want to
  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<collective::PointToPoint> messages_ GUARDED_BY(mutex_);  // null after stop()
  std::list<Posted> posted_ GUARDED_BY(mutex_);
  std::list<Ended> failed_ GUARDED_BY(mutex_);  // whose cause may still come
  bool driven_ GUARDED_BY(mutex_) = false;      // a thread moves the messages
  bool used_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundelay::process_group
