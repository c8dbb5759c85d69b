#include "channel/mpi/mpi_channel.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "wire/frames.h"

namespace roundelay::channel {
namespace {

constexpr int kMessageTag = 1;
constexpr int kGoodbyeTag = 2;  // the tag of a rank's last message
constexpr Duration kHot = std::chrono::microseconds(50);
constexpr Duration kFirstSleep = std::chrono::microseconds(50);
constexpr Duration kLongestSleep = std::chrono::milliseconds(2);

}  // namespace

MpiChannel::MpiChannel(mpi::Session& session, MPI_Comm communicator)
    : session_(session), communicator_(communicator), gone_(static_cast<std::size_t>(session.size())) {}

Result<std::unique_ptr<Channel>> MpiChannel::create(mpi::Session& session, const Group& world,
                                                    Deadline deadline) {
  Result<MPI_Comm> communicator = session.communicator(world, deadline);
  if (!communicator.ok()) return communicator.status();
  return std::unique_ptr<Channel>(new MpiChannel(session, *communicator));
}

MpiChannel::~MpiChannel() {
  MutexLock lock(mutex_);
  abandon();
}

// Gives up all transfers. MPI may still use their memory, so it is never freed.
void MpiChannel::abandon() {
  for (auto& out : outgoing_) {
    if (out->request != MPI_REQUEST_NULL) static_cast<void>(out.release());
  }
  for (auto& in : arriving_) {
    if (in->request != MPI_REQUEST_NULL) static_cast<void>(in.release());
  }
  outgoing_.clear();
  arriving_.clear();
}

// Keeps the first error of MPI, which fails all later sends. Returns `status`.
Status MpiChannel::keep_error(const Status& status) {
  if (!status.ok() && failure_.ok()) failure_ = status;
  return status;
}

Status MpiChannel::send(int to, ConstByteSpan message) {
  ROUNDELAY_RETURN_IF_ERROR(wire::check_length(message));
  MutexLock lock(mutex_);
  if (closed_) return Status::unavailable("the channel is closed");
  ROUNDELAY_RETURN_IF_ERROR(failure_);
  if (gone_[static_cast<std::size_t>(to)]) return {};
  if (to == session_.rank()) {
    auto arrived = std::make_unique<Arriving>();
    arrived->incoming.from = to;
    arrived->incoming.bytes.assign(message.begin(), message.end());
    arriving_.push_back(std::move(arrived));
    changed_.notify_all();
    return {};
  }
  enqueue(to, kMessageTag, message);
  if (any_thread()) {
    move_output();
  } else {
    changed_.notify_all();  // the owner's wait() sends the message
  }
  return failure_;
}

void MpiChannel::enqueue(int to, int tag, ConstByteSpan message) {
  auto out = std::make_unique<Outgoing>();
  out->to = to;
  out->tag = tag;
  out->bytes.assign(message.begin(), message.end());
  outgoing_.push_back(std::move(out));
}

// Starts queued sends, and frees those that are complete.
void MpiChannel::move_output() {
  if (session_.finalized()) return;  // not usable(): after poison() this channel still reports the fault
  for (auto& out : outgoing_) {
    if (!failure_.ok()) return;
    if (!out->posted) {
      out->posted = true;
      static_cast<void>(
          keep_error(mpi::check(MPI_Isend(out->bytes.data(), static_cast<int>(out->bytes.size()), MPI_BYTE,
                                          out->to, out->tag, communicator_, &out->request),
                                "MPI_Isend")));
    }
  }
  while (!outgoing_.empty()) {
    int done = 0;
    if (!keep_error(mpi::check(MPI_Test(&outgoing_.front()->request, &done, MPI_STATUS_IGNORE), "MPI_Test"))
             .ok())
      return;
    if (done == 0) return;
    outgoing_.pop_front();
  }
}

// Starts to receive all messages that have arrived.
void MpiChannel::move_input() {
  while (failure_.ok() && !session_.finalized()) {
    int there = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (!keep_error(
             mpi::check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &there, &message, &status),
                        "MPI_Improbe"))
             .ok() ||
        there == 0) {
      return;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    auto arriving = std::make_unique<Arriving>();
    arriving->incoming.from = status.MPI_SOURCE;
    arriving->incoming.bytes.resize(static_cast<std::size_t>(bytes));
    arriving->goodbye = status.MPI_TAG == kGoodbyeTag;
    static_cast<void>(keep_error(
        mpi::check(MPI_Imrecv(arriving->incoming.bytes.data(), bytes, MPI_BYTE, &message, &arriving->request),
                   "MPI_Imrecv")));
    arriving_.push_back(std::move(arriving));
  }
}

// Returns whether the oldest message is complete. Later messages wait for it, so each sender's order is kept.
bool MpiChannel::ready() {
  if (arriving_.empty()) return false;
  Arriving& first = *arriving_.front();
  if (first.request == MPI_REQUEST_NULL) return true;
  int done = 0;
  static_cast<void>(keep_error(mpi::check(MPI_Test(&first.request, &done, MPI_STATUS_IGNORE), "MPI_Test")));
  return done != 0;
}

std::optional<Incoming> MpiChannel::receive() {
  MutexLock lock(mutex_);
  woken_ = false;
  if (closed_) return std::nullopt;
  move_output();
  move_input();
  while (ready()) {
    const std::unique_ptr<Arriving> arrived = std::move(arriving_.front());
    arriving_.pop_front();
    if (!arrived->goodbye) return std::move(arrived->incoming);
    gone_[static_cast<std::size_t>(arrived->incoming.from)] = true;
  }
  return std::nullopt;
}

void MpiChannel::wait(Deadline deadline) {
  Duration sleep = kFirstSleep;
  const TimePoint begin = steady_now();
  while (true) {
    {
      MutexLock lock(mutex_);
      if (woken_ || closed_) return;
      move_output();
      move_input();
      if (ready()) return;
      const TimePoint now = steady_now();
      if (deadline.passed(now)) return;
      if (now - begin >= 2 * kHot) {
        changed_.wait_until(mutex_, deadline.sooner(Deadline::at(now + sleep)));
        sleep = std::min(sleep * 2, kLongestSleep);
        continue;
      }
    }
    if (session_.crowded() || steady_now() - begin >= kHot) sched_yield();
  }
}

void MpiChannel::wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void MpiChannel::close(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (int rank = 0; rank < session_.size(); ++rank) {
      if (rank != session_.rank() && !gone_[static_cast<std::size_t>(rank)]) enqueue(rank, kGoodbyeTag, {});
    }
    changed_.notify_all();
  }
  while (true) {
    {
      MutexLock lock(mutex_);
      move_output();
      move_input();  // so that peers that close at the same time can finish their sends
      if (outgoing_.empty()) return;
      if (deadline.passed() || !failure_.ok() || session_.finalized()) {
        abandon();
        return;
      }
    }
    std::this_thread::sleep_for(kFirstSleep);
  }
}

}  // namespace roundelay::channel
