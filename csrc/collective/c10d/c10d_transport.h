#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/group.h"
#include "collective/engine/slots.h"
#include "collective/program/transport.h"
#include "platform/c10d/process_group.h"

namespace roundelay::collective {

// A Transport over a process group. Its works cannot be polled: Gloo's say that they are complete only to a
// thread that waits, and a wait that times out closes all connections. So this class has threads that wait,
// one for each message that is on its way at once.
class C10dTransport final : public Transport {
 public:
  C10dTransport(std::unique_ptr<platform::ProcessGroup> process_group, const Group& group,
                std::size_t most_message_bytes);
  // Joins the threads. If transfers are still on their way, it gives them up and leaks the process group,
  // because to close it could wait for dead ranks.
  ~C10dTransport() override;

  [[nodiscard]] int index() const override { return group_.index; }
  [[nodiscard]] int size() const override { return group_.size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override EXCLUDES(mutex_);
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override EXCLUDES(mutex_);
  Result<bool> test(TransferId id) override EXCLUDES(mutex_);

  // Makes every transfer fail that is on its way. Any thread may call it.
  void give_up() EXCLUDES(mutex_);

 private:
  using WorkPtr = std::shared_ptr<platform::GroupWork>;
  // One transfer.
  struct Slot {
    std::vector<WorkPtr> parts;
    std::size_t left = 0;
    int peer = 0;
    std::byte nothing{};  // the byte that an empty message carries
    Status error;         // the first one
  };
  struct Waited {
    WorkPtr work;
    Slot* slot;
  };
  using PostPart = std::function<Result<WorkPtr>(ByteSpan part)>;
  // Posts a message in parts that the medium carries.
  Result<TransferId> post(int peer, ByteSpan data, const PostPart& post_part) EXCLUDES(mutex_);
  std::pair<TransferId, Slot*> take_slot(int peer) EXCLUDES(mutex_);
  // Gives a work of this slot to a thread that waits for it.
  Status have_waited(Slot& slot, WorkPtr work) EXCLUDES(mutex_);
  [[nodiscard]] Status failure(const Slot& slot, const Status& cause) const;
  // Runs on each of the threads.
  void wait_for_works() EXCLUDES(mutex_);

  std::unique_ptr<platform::ProcessGroup> process_group_;
  const Group group_;
  const std::size_t most_bytes_;
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar changed_;
  Slots<Slot> slots_ GUARDED_BY(mutex_);
  std::deque<Waited> queue_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;  // threads without a work
  bool over_ GUARDED_BY(mutex_) = false;
};

}  // namespace roundelay::collective
