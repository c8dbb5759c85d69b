// The control plane over MPI, for machines that forbid sockets. MPI cannot put a thread to sleep until a
// message comes, so wait() polls: for 50 us without pause, for 50 us while it yields the CPU, then with
// sleeps that double up to 2 ms (about 1 % of a core). wake() ends a sleep at once. Each arrival restarts the
// sequence.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "channel/channel.h"
#include "platform/mpi/session.h"

namespace roundelay::channel {

// A rank's last message is its goodbye. The channel never reports a loss: MPI's launcher ends the job when a
// peer dies.
class MpiChannel final : public Channel {
 public:
  // Makes a channel. Collective over the world. Errors: kAborted, kUnavailable.
  static Result<std::unique_ptr<Channel>> create(mpi::Session& session, const Group& world,
                                                 Deadline deadline);

  ~MpiChannel() override;

  Status send(int to, ConstByteSpan message) override EXCLUDES(mutex_);
  std::optional<Incoming> receive() override EXCLUDES(mutex_);
  void wait(Deadline deadline) override EXCLUDES(mutex_);
  void wake() override EXCLUDES(mutex_);
  void close(Deadline deadline) override EXCLUDES(mutex_);
  [[nodiscard]] bool any_thread() const override { return session_.any_thread(); }

 private:
  struct Outgoing {
    int to;
    int tag;
    Bytes bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    bool posted = false;
  };
  struct Arriving {
    Incoming incoming;
    MPI_Request request = MPI_REQUEST_NULL;  // null when the message is complete
    bool goodbye = false;
  };

  MpiChannel(mpi::Session& session, MPI_Comm communicator);
  void enqueue(int to, int tag, ConstByteSpan message) REQUIRES(mutex_);
  void move_output() REQUIRES(mutex_);
  void move_input() REQUIRES(mutex_);
  bool ready() REQUIRES(mutex_);
  void abandon() REQUIRES(mutex_);
  Status keep_error(const Status& status) REQUIRES(mutex_);

  mpi::Session& session_;
  // Never freed, because messages to a rank that closed first may still use it.
  const MPI_Comm communicator_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::unique_ptr<Outgoing>> outgoing_ GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Arriving>> arriving_ GUARDED_BY(mutex_);
  std::vector<bool> gone_ GUARDED_BY(mutex_);
  bool woken_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  Status failure_ GUARDED_BY(mutex_);  // the first error of MPI
};

}  // namespace roundelay::channel
