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
#include "collective/slots.h"
#include "collective/transport.h"
#include "platform/c10d/process_group.h"

namespace roundelay::collective {

// A process group's works can only be waited for, one thread a work (Gloo's tell that they are complete only
// to who waits, and a wait that times out closes all connections). So threads of our own wait: as many as
// there were messages on their way at once.
class C10dTransport final : public Transport {
 public:
  C10dTransport(std::unique_ptr<platform::ProcessGroup> process_group, const Group& group,
                std::size_t most_message_bytes);
  // Joins the threads. Transfers still out are given up; then the process group stays, unused: to close it
  // could wait for the dead.
  ~C10dTransport() override;

  [[nodiscard]] int index() const override { return group_.index; }
  [[nodiscard]] int size() const override { return group_.size(); }
  Result<Ticket> send(int peer, ConstByteSpan data, int tag) override EXCLUDES(mutex_);
  Result<Ticket> receive(int peer, ByteSpan data, int tag) override EXCLUDES(mutex_);
  Result<bool> test(Ticket ticket) override EXCLUDES(mutex_);

  // Every transfer still out fails. From any thread.
  void give_up() EXCLUDES(mutex_);

 private:
  using WorkPtr = std::shared_ptr<platform::GroupWork>;
  // One transfer.
  struct Slot {
    std::vector<WorkPtr> parts;
    std::size_t left = 0;
    int peer = 0;
    std::byte nothing{};  // what an empty message carries
    Status error;         // the first
  };
  struct Waited {
    WorkPtr work;
    Slot* slot;
  };
  using PostPart = std::function<Result<WorkPtr>(ByteSpan part)>;
  Result<Ticket> post(int peer, ByteSpan data, const PostPart& post_part) EXCLUDES(mutex_);
  std::pair<Ticket, Slot*> take_slot(int peer) EXCLUDES(mutex_);
  Status have_waited(Slot& slot, WorkPtr work) EXCLUDES(mutex_);
  [[nodiscard]] Status failure(const Slot& slot, const Status& cause) const;
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
