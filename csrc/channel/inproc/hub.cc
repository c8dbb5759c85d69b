#include "channel/inproc/hub.h"

#include <cassert>
#include <string>
#include <utility>

#include "wire/frames.h"

namespace roundelay::channel {
namespace {

Status lost_status(int rank) {
  return Status::aborted("connection to rank " + std::to_string(rank) + " was lost: closed by the peer");
}

}  // namespace

Hub::State::State(int count, Delivery how)
    : delivery(how), size(count), boxes(static_cast<std::size_t>(count)) {
  for (Mailbox& box : boxes) box.saw_loss_of.resize(static_cast<std::size_t>(count));
}

void Hub::State::post(int from, int to, Incoming incoming) {
  if (delivery == Delivery::kByHand) {
    links[Link{from, to}].push_back(std::move(incoming));
  } else {
    arrive(to, std::move(incoming));
  }
}

void Hub::State::arrive(int to, Incoming incoming) {
  Mailbox& box = at(to);
  if (box.gone) return;
  if (!incoming.lost.ok()) {
    auto seen = box.saw_loss_of[static_cast<std::size_t>(incoming.from)];
    if (seen) return;
    seen = true;
  }
  box.inbox.push_back(std::move(incoming));
  box.changed.notify_all();
}

class Hub::Port final : public Channel {
 public:
  Port(std::shared_ptr<State> state, int rank) : state_(std::move(state)), rank_(rank) {}
  ~Port() override {
    MutexLock lock(state_->mutex);
    if (!leave()) return;
    for (int peer = 0; peer < state_->size; ++peer) {
      if (!state_->at(peer).gone) state_->post(rank_, peer, {rank_, {}, lost_status(rank_)});
    }
  }

  Status send(int to, ConstByteSpan message) override {
    MutexLock lock(state_->mutex);
    if (to < 0 || to >= state_->size) {
      return Status::invalid("cannot send to rank " + std::to_string(to) + " of " +
                             std::to_string(state_->size));
    }
    ROUNDELAY_RETURN_IF_ERROR(wire::check_length(message));
    if (state_->at(rank_).gone) return Status::unavailable("the channel is closed");
    if (state_->at(rank_).saw_loss_of[static_cast<std::size_t>(to)]) return lost_status(to);
    // A message to a peer whose end is not yet known here is dropped without an error, as on a network.
    if (!state_->at(to).gone) state_->post(rank_, to, {rank_, Bytes(message.begin(), message.end()), {}});
    return {};
  }

  std::optional<Incoming> receive() override {
    MutexLock lock(state_->mutex);
    Mailbox& box = state_->at(rank_);
    box.wake_pending = false;
    if (box.inbox.empty()) return std::nullopt;
    Incoming first = std::move(box.inbox.front());
    box.inbox.pop_front();
    return first;
  }

  void wait(Deadline deadline) override {
    if (state_->delivery == Delivery::kByHand) return;
    MutexLock lock(state_->mutex);
    Mailbox& box = state_->at(rank_);
    const std::uint64_t wakes = box.wakes;
    while (!box.wake_pending && box.wakes == wakes && box.inbox.empty() && !box.gone && !deadline.passed()) {
      box.changed.wait_until(state_->mutex, deadline);
    }
  }

  void wake() override {
    MutexLock lock(state_->mutex);
    Mailbox& box = state_->at(rank_);
    box.wake_pending = true;
    ++box.wakes;
    box.changed.notify_all();
  }

  void close(Deadline) override {
    MutexLock lock(state_->mutex);
    static_cast<void>(leave());  // peers need no goodbye, because no connection ends
  }

 private:
  // Returns false if the rank has already left.
  bool leave() REQUIRES(state_->mutex) {
    Mailbox& box = state_->at(rank_);
    if (std::exchange(box.gone, true)) return false;
    box.inbox.clear();
    box.changed.notify_all();
    return true;
  }

  const std::shared_ptr<State> state_;
  const int rank_;
};

Hub::Hub(int size, Delivery delivery) : state_(std::make_shared<State>(size, delivery)) {}

std::unique_ptr<Channel> Hub::channel(int rank) {
  assert(rank >= 0 && rank < state_->size);
  return std::make_unique<Port>(state_, rank);
}

std::vector<Hub::Link> Hub::pending_links() const {
  MutexLock lock(state_->mutex);
  std::vector<Link> pending;
  pending.reserve(state_->links.size());
  for (const auto& [link, queue] : state_->links) pending.push_back(link);
  return pending;
}

bool Hub::deliver(int from, int to) {
  MutexLock lock(state_->mutex);
  const auto link = state_->links.find(Link{from, to});
  if (link == state_->links.end()) return false;
  Incoming oldest = std::move(link->second.front());
  link->second.pop_front();
  if (link->second.empty()) state_->links.erase(link);
  state_->arrive(to, std::move(oldest));
  return true;
}

void Hub::disconnect(int rank) {
  MutexLock lock(state_->mutex);
  Mailbox& dead = state_->at(rank);
  dead.gone = true;
  dead.inbox.clear();
  dead.changed.notify_all();
  std::erase_if(state_->links,
                [rank](const auto& entry) { return entry.first.from == rank || entry.first.to == rank; });
  for (int peer = 0; peer < state_->size; ++peer) {
    if (peer != rank) state_->arrive(peer, {rank, {}, lost_status(rank)});
  }
}

}  // namespace roundelay::channel
