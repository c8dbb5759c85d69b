#include "collective/point_to_point/point_to_point.h"

#include <algorithm>
#include <string>
#include <utility>

namespace roundelay::collective {

PointToPoint::PointToPoint(std::unique_ptr<Transport> transport, Group group)
    : transport_(std::move(transport)), messages_(std::move(group)), links_(messages_.group().ranks.size()) {
  for (int peer = 0; peer < messages_.group().size(); ++peer) {
    if (peer == messages_.group().index) continue;
    link(peer) = std::make_unique<PeerLink>(*transport_, peer, messages_, matcher_);
    if (const Status error = link(peer)->open(); !error.ok()) give_up(error);
  }
}

PointToPoint::~PointToPoint() = default;

Status PointToPoint::usable() const {
  if (!poison_.ok()) return poison_;
  return leaving_ ? Status::invalid("this rank has left: it sends and receives nothing more") : Status();
}

Status PointToPoint::check(int peer) {
  ROUNDELAY_RETURN_IF_ERROR(usable());
  const Group& group = messages_.group();
  if (peer < 0 || peer >= group.size()) {
    return Status::invalid("there is no member " + std::to_string(peer) + " in a group of " +
                           std::to_string(group.size()));
  }
  if (peer == group.index) return Status::invalid("a rank cannot send to itself, nor receive from itself");
  if (!link(peer)->lost().ok()) return link(peer)->lost();
  return link(peer)->left() ? messages_.has_left(peer) : Status();
}

Result<MessageId> PointToPoint::send(int peer, ConstByteSpan data, MessageTag tag) {
  ROUNDELAY_RETURN_IF_ERROR(check(peer));
  const MessageId id = messages_.add(true, peer, {const_cast<std::byte*>(data.data()), data.size()}, tag);
  link(peer)->offer(id);
  moved_ = true;
  return id;
}

Result<MessageId> PointToPoint::receive(int peer, ByteSpan memory, MessageTag tag) {
  ROUNDELAY_RETURN_IF_ERROR(check(peer));
  return post_receive(peer, memory, tag);
}

Result<MessageId> PointToPoint::receive_any(ByteSpan memory, MessageTag tag) {
  ROUNDELAY_RETURN_IF_ERROR(usable());
  if (all_left()) return Status::aborted("every other rank has left");
  return post_receive(kAnyPeer, memory, tag);
}

MessageId PointToPoint::post_receive(int peer, ByteSpan memory, MessageTag tag) {
  const MessageId id = messages_.add(false, peer, memory, tag);
  moved_ = true;
  if (const auto found = matcher_.take_offer(peer, tag)) {
    const auto& [from, offer] = *found;
    const Status& lost = link(from)->lost();
    if (!lost.ok() && !offer.with_payload) {
      messages_.finish(id, lost);
      return id;
    }
    link(from)->match(id, offer, offer.payload);
  } else {
    matcher_.add_receive(peer, tag, id);
  }
  return id;
}

void PointToPoint::progress() {
  for (int peer = 0; peer < messages_.group().size() && poison_.ok(); ++peer) {
    if (peer == messages_.group().index) continue;
    const bool had_left = link(peer)->left();
    const Result<bool> moved = link(peer)->progress();
    if (!moved.ok()) {
      lose(peer, moved.status());
      continue;
    }
    moved_ = moved_ || *moved;
    if (link(peer)->left() && !had_left) end_messages_of(peer);
  }
}

// Nothing more can go to this peer or come from it. The other peers' messages go on: this one may have ended
// in order, and whoever knows better gives up all.
void PointToPoint::lose(int peer, const Status& error) {
  link(peer)->lose(error);
  for (const MessageId id : matcher_.take_receives(peer)) messages_.finish(id, error);
  messages_.finish_all(peer, error);
  moved_ = true;
  if (!all_left()) return;
  for (const MessageId id : matcher_.take_receives(kAnyPeer)) messages_.finish(id, error);
}

// The peer had nothing in flight when it left. So it has not matched what still waits for it, and never will.
void PointToPoint::end_messages_of(int peer) {
  const Status error = messages_.has_left(peer);
  messages_.finish_sends(peer, error);
  for (const MessageId id : matcher_.take_receives(peer)) messages_.finish(id, error);
  if (!all_left()) return;
  for (const MessageId id : matcher_.take_receives(kAnyPeer)) messages_.finish(id, error);
}

Result<std::optional<int>> PointToPoint::look(MessageId id) {
  Result<std::optional<int>> over = messages_.take(id);
  if (over.ok() && !*over && !poison_.ok()) return poison_;
  return over;
}

bool PointToPoint::has_unsent() const {
  return poison_.ok() && std::any_of(links_.begin(), links_.end(),
                                     [](const auto& link) { return link != nullptr && link->has_unsent(); });
}

Nap PointToPoint::idle(Backoff& backoff) {
  if (std::exchange(moved_, false)) backoff.reset();
  return transport_->nap(backoff);
}

void PointToPoint::give_up(const Status& cause) {
  if (poison_.ok()) poison_ = cause;
}

Result<bool> PointToPoint::leave() {
  if (!poison_.ok()) return poison_;
  if (messages_.open() > 0) {
    return Status::invalid("this rank cannot leave: " + std::to_string(messages_.open()) +
                           " messages are not over");
  }
  leaving_ = true;
  for (const auto& link : links_) {
    if (link != nullptr) link->leave();
  }
  progress();
  if (!poison_.ok()) return poison_;
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link == nullptr || link->closed(); });
}

bool PointToPoint::all_left() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link == nullptr || link->left(); });
}

}  // namespace roundelay::collective
