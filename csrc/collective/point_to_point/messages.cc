#include "collective/point_to_point/messages.h"

#include <algorithm>
#include <string>
#include <utility>

namespace roundelay::collective {
namespace {

std::string rank_text(const Group& group, int member) {
  return "rank " + std::to_string(group.ranks[static_cast<std::size_t>(member)]);
}

}  // namespace

MessageId Messages::add(bool sends, int peer, ByteSpan memory, MessageTag tag) {
  const MessageId id = slots_.acquire();
  count_ = std::max(count_, id + 1);
  slots_[id] = {.state = Message::State::kPosted, .sends = sends, .peer = peer, .tag = tag, .memory = memory};
  ++open_;
  return id;
}

Message* Messages::offered(int peer, MessageId id) {
  if (id >= count_) return nullptr;
  Message& message = slots_[id];
  return message.state == Message::State::kOffered && message.peer == peer ? &message : nullptr;
}

void Messages::finish(MessageId id, Status error) {
  slots_[id].state = Message::State::kOver;
  slots_[id].error = std::move(error);
  --open_;
}

void Messages::finish_all(int peer, const Status& error) {
  for (MessageId id = 0; id < count_; ++id) {
    const Message& message = slots_[id];
    const bool open = message.state != Message::State::kFree && message.state != Message::State::kOver;
    if (open && message.peer == peer) finish(id, error);
  }
}

void Messages::finish_sends(int peer, const Status& error) {
  for (MessageId id = 0; id < count_; ++id) {
    const Message& message = slots_[id];
    const bool still = message.state == Message::State::kPosted || message.state == Message::State::kOffered;
    if (still && message.sends && message.peer == peer) finish(id, error);
  }
}

Result<std::optional<int>> Messages::take(MessageId id) {
  Message& message = slots_[id];
  if (message.state != Message::State::kOver) return std::optional<int>();
  message.state = Message::State::kFree;
  slots_.release(id);
  if (!message.error.ok()) return std::exchange(message.error, {});
  return std::optional<int>(message.peer);
}

Status Messages::mismatch(int from, int to, MessageTag tag, std::uint64_t sent, std::uint64_t wanted) const {
  return Status::mismatch(rank_text(group_, from) + " sends " + std::to_string(sent) + " bytes with tag " +
                          std::to_string(tag) + " to " + rank_text(group_, to) + ", which receives " +
                          std::to_string(wanted) + " bytes with that tag");
}

Status Messages::has_left(int peer) const { return Status::aborted(rank_text(group_, peer) + " has left"); }

}  // namespace roundelay::collective
