#include "collective/point_to_point/peer_link.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace roundelay::collective {
namespace {

constexpr int kDataTag = 1;  // ControlLink has another one

void copy(ByteSpan to, ConstByteSpan from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

PeerLink::PeerLink(Transport& transport, int peer, Messages& messages, Matcher& matcher)
    : transport_(transport), peer_(peer), messages_(messages), matcher_(matcher), control_(transport, peer) {}

void PeerLink::match(MessageId receive, const Offer& offer, ConstByteSpan payload) {
  Message& message = messages_[receive];
  message.peer = peer_;
  const std::size_t wanted = message.memory.size();
  if (wanted != offer.bytes) {
    to_answer_.push_back({offer.message, Decision::kMismatch, wanted});
    const int self = messages_.group().index;
    messages_.finish(receive, messages_.mismatch(peer_, self, message.tag, offer.bytes, wanted));
  } else if (offer.with_payload) {
    copy(message.memory, payload);
    to_answer_.push_back({offer.message, Decision::kTaken, 0});
    messages_.finish(receive);
  } else {
    message.theirs = offer.message;
    matched_.push_back(receive);
  }
}

// A peer that has left need not wait for this member, and may be gone. It has had all that was sent to it.
Result<bool> PeerLink::progress() {
  moved_ = false;
  if (gone_) return false;
  const Status error = step();
  if (error.ok()) return moved_;
  if (!left_) return error;
  gone_ = true;
  for (const MessageId id : moving_out_) messages_.finish(id);
  moving_out_.clear();
  return true;
}

void PeerLink::lose(const Status& error) {
  lost_ = error;
  left_ = gone_ = true;
  for (auto* const ids : {&to_offer_, &matched_, &moving_out_, &moving_in_}) ids->clear();
  to_answer_.clear();
}

Status PeerLink::step() {
  ROUNDELAY_RETURN_IF_ERROR(hear());
  ROUNDELAY_RETURN_IF_ERROR(start_receives());
  ROUNDELAY_RETURN_IF_ERROR(test_moving(moving_out_));
  ROUNDELAY_RETURN_IF_ERROR(test_moving(moving_in_));
  return speak();
}

// Takes one message at a time, so that a busy peer does not keep others away from receives from any.
Status PeerLink::hear() {
  const Result<const ControlMessage*> control = control_.poll();
  if (!control.ok()) return control.status();
  if (*control == nullptr) return {};
  moved_ = true;
  ROUNDELAY_RETURN_IF_ERROR(take_control(**control));
  return left_ ? Status() : control_.expect();
}

Status PeerLink::take_control(const ControlMessage& control) {
  switch (control.header.kind) {
    case ControlKind::kOffer:
    case ControlKind::kPayload:
      return take_offer(control);
    case ControlKind::kAnswers:
      if (control.header.answers > kMostAnswers) return broken();
      for (std::uint32_t i = 0; i < control.header.answers; ++i)
        ROUNDELAY_RETURN_IF_ERROR(take_answer(control.answers[i]));
      return {};
    case ControlKind::kGoodbye:
      left_ = true;
      to_offer_.clear();
      return {};
  }
  return broken();
}

Status PeerLink::take_offer(const ControlMessage& control) {
  const ControlHeader& header = control.header;
  Offer offer{
      .message = header.message, .bytes = header.bytes, .with_payload = header.kind == ControlKind::kPayload};
  ConstByteSpan payload;
  if (offer.with_payload) {
    if (header.bytes > kMostPayload) return broken();
    payload = ConstByteSpan(control.payload).first(header.bytes);
  }
  if (const auto receive = matcher_.take_receive(peer_, header.tag)) {
    match(*receive, offer, payload);
  } else {
    offer.payload.assign(payload.begin(), payload.end());
    matcher_.add_offer(peer_, header.tag, std::move(offer));
  }
  return {};
}

Status PeerLink::take_answer(const Answer& answer) {
  Message* const message = messages_.offered(peer_, answer.message);
  if (message == nullptr) return broken();
  const std::size_t bytes = message->memory.size();
  if (message->with_payload) payloads_ -= bytes;
  if (answer.decision == Decision::kMismatch) {
    const int self = messages_.group().index;
    messages_.finish(answer.message, messages_.mismatch(self, peer_, message->tag, bytes, answer.bytes));
  } else if (answer.decision == Decision::kTaken && message->with_payload) {
    messages_.finish(answer.message);
  } else if (answer.decision == Decision::kSend && !message->with_payload) {
    const Result<TransferId> transfer = transport_.send(peer_, message->memory, kDataTag);
    if (!transfer.ok()) return transfer.status();
    message->transfer = *transfer;
    message->state = Message::State::kMoving;
    moving_out_.push_back(answer.message);
  } else {
    return broken();
  }
  return {};
}

// The peer sends in the order of these answers, so that all data of a pair can have one tag.
Status PeerLink::start_receives() {
  while (!matched_.empty() && moving_in_.size() < kMostMoving) {
    const MessageId id = matched_.front();
    Message& message = messages_[id];
    const Result<TransferId> transfer = transport_.receive(peer_, message.memory, kDataTag);
    if (!transfer.ok()) return transfer.status();
    message.transfer = *transfer;
    message.state = Message::State::kMoving;
    matched_.pop_front();
    moving_in_.push_back(id);
    to_answer_.push_back({message.theirs, Decision::kSend, 0});
  }
  return {};
}

Status PeerLink::test_moving(std::deque<MessageId>& moving) {
  for (auto at = moving.begin(); at != moving.end();) {
    const Result<bool> done = transport_.test(messages_[*at].transfer);
    if (!done.ok()) return done.status();
    if (!*done) {
      ++at;
      continue;
    }
    moved_ = true;
    messages_.finish(*at);
    at = moving.erase(at);
  }
  return {};
}

Status PeerLink::speak() {
  while (true) {
    const Result<ControlMessage*> control = control_.free_out();
    if (!control.ok()) return control.status();
    if (*control == nullptr || !write(**control)) return {};
    ROUNDELAY_RETURN_IF_ERROR(control_.send());
    moved_ = true;
  }
}

// Answers go first: they let the peer end messages.
bool PeerLink::write(ControlMessage& control) {
  if (!to_answer_.empty()) {
    write_answers(control);
  } else if (!to_offer_.empty()) {
    write_offer(control);
  } else if (leaving_ && !told_) {
    control.header = {.kind = ControlKind::kGoodbye};
    told_ = true;
  } else {
    return false;
  }
  return true;
}

void PeerLink::write_answers(ControlMessage& control) {
  const std::size_t count = std::min(to_answer_.size(), kMostAnswers);
  const auto end = to_answer_.begin() + static_cast<std::ptrdiff_t>(count);
  control.header = {.kind = ControlKind::kAnswers, .answers = static_cast<std::uint32_t>(count)};
  std::copy(to_answer_.begin(), end, control.answers.begin());
  to_answer_.erase(to_answer_.begin(), end);
}

void PeerLink::write_offer(ControlMessage& control) {
  const MessageId id = to_offer_.front();
  to_offer_.pop_front();
  Message& message = messages_[id];
  const std::size_t bytes = message.memory.size();
  message.state = Message::State::kOffered;
  message.with_payload = bytes <= kMostPayload && payloads_ + bytes <= kMostPayloads;
  control.header = {.kind = message.with_payload ? ControlKind::kPayload : ControlKind::kOffer,
                    .message = id,
                    .tag = message.tag,
                    .bytes = bytes};
  if (!message.with_payload) return;
  copy(control.payload, message.memory);
  payloads_ += bytes;
}

Status PeerLink::broken() const {
  return Status::internal("member " + std::to_string(peer_) + " sent a control message that makes no sense");
}

}  // namespace roundelay::collective
