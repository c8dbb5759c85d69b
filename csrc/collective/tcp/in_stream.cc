#include "collective/tcp/in_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace roundelay::collective::tcp {
namespace {

using platform::Transfer;

Status sizes_differ(std::size_t sent, std::size_t expected) {
  return Status::aborted("it sends " + std::to_string(sent) + " bytes where " + std::to_string(expected) +
                         " are expected");
}

bool is_small(std::size_t bytes) { return bytes <= kMostSmall; }

}  // namespace

Status InStream::receive(TransferId id, ByteSpan data, const Label& label, std::vector<TransferId>& over) {
  const Posted posted{id, data, label};
  for (const Kept& one : kept_) {
    if (differ(label, one.label)) return calls_differ(label, one.label);
  }
  for (const Label& offer : offers_) {
    if (differ(label, offer)) return calls_differ(label, offer);
  }
  if (is_small(data.size())) {
    const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) {
      return one.label.tag == label.tag && !one.receive;
    });
    if (kept != kept_.end()) {
      if (kept->bytes.size() != data.size()) return sizes_differ(kept->bytes.size(), data.size());
      take_kept(kept, posted, over);
      return {};
    }
  } else {
    notices_.push_back(label);
  }
  if (ended_) return Status::aborted(kClosed);
  posted_.push_back(posted);
  return {};
}

// Gives a kept message to its receive, now or when it is complete.
void InStream::take_kept(const std::deque<Kept>::iterator& kept, Posted receive,
                         std::vector<TransferId>& over) {
  if (!kept->complete) {
    kept->receive = receive;
    return;
  }
  std::copy(kept->bytes.begin(), kept->bytes.end(), receive.data.begin());
  kept_bytes_ -= kept->bytes.size();
  kept_.erase(kept);
  over.push_back(receive.id);
}

Status InStream::read(std::vector<TransferId>& over) {
  while (wants_input()) {
    const bool direct = into_.has_value();
    const Transfer done = read_some(over);
    if (done.state == Transfer::State::kWouldBlock) return {};
    if (done.state == Transfer::State::kEnd) return end();
    if (done.state == Transfer::State::kError) return Status::aborted(platform::errno_text(done.error));
    ROUNDELAY_RETURN_IF_ERROR(parse(over));
    // Less than was asked for is all there is: the next read would only say so.
    if (!direct && done.bytes < kBuffer) return {};
  }
  return {};
}

// Called when the sender has closed the stream. It does so when it needs nothing more of it, while its other
// streams may still carry what it sent before.
Status InStream::end() {
  if (into_ || !posted_.empty()) return Status::aborted(kClosed);
  ended_ = true;
  socket_.reset();
  return {};
}

// Reads into the memory of the message that arrives, and what is behind it into the buffer, which is empty.
Transfer InStream::read_some(std::vector<TransferId>& over) {
  begin_ = end_ = 0;
  if (!into_) {
    const Transfer done = socket_->read(ByteSpan(buffer_));
    if (done.state == Transfer::State::kSome) end_ = done.bytes;
    return done;
  }
  const std::size_t left = into_->left.size();
  const Transfer done = socket_->read(into_->left, ByteSpan(buffer_));
  if (done.state != Transfer::State::kSome) return done;
  end_ = done.bytes - std::min(done.bytes, left);
  advance(done.bytes - end_, over);
  return done;
}

// Takes what is in the buffer.
Status InStream::parse(std::vector<TransferId>& over) {
  while (begin_ < end_) {
    if (into_) {
      const std::size_t some = std::min(into_->left.size(), end_ - begin_);
      std::memcpy(into_->left.data(), buffer_.data() + begin_, some);
      begin_ += some;
      advance(some, over);
    } else {
      begin_ += arriving_.take(buffer_.data() + begin_, end_ - begin_);
      if (arriving_.complete()) ROUNDELAY_RETURN_IF_ERROR(begin(arriving_.next(), over));
    }
  }
  return {};
}

// Finds the memory for the bytes that come after this header, unless it is an offer.
Status InStream::begin(const Header& header, std::vector<TransferId>& over) {
  const bool small = is_small(header.bytes);
  for (const Posted& one : posted_) {
    if (differ(one.label, header.label)) return calls_differ(one.label, header.label);
  }
  if (header.bytes == kOffer) {
    offers_.push_back(header.label);
    return {};
  }
  if (!small) forget_offer(header.label.tag);
  const auto posted = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& one) {
    return one.label.tag == header.label.tag && is_small(one.data.size()) == small;
  });
  if (posted != posted_.end()) {
    if (posted->data.size() != header.bytes) return sizes_differ(header.bytes, posted->data.size());
    into_ = Into{posted->id, posted->data};
    posted_.erase(posted);
  } else if (small) {
    kept_.push_back({header.label, Bytes(header.bytes), false, std::nullopt});
    kept_bytes_ += header.bytes;
    into_ = Into{std::nullopt, ByteSpan(kept_.back().bytes)};
  } else {
    return Status::aborted("it sends " + std::to_string(header.bytes) + " bytes that nobody receives");
  }
  if (header.bytes == 0) complete(over);
  return {};
}

// Forgets the offer of a message that has come.
void InStream::forget_offer(std::uint64_t tag) {
  const auto offer = std::ranges::find(offers_, tag, &Label::tag);
  if (offer != offers_.end()) offers_.erase(offer);
}

// Counts bytes of the message that arrives.
void InStream::advance(std::size_t bytes, std::vector<TransferId>& over) {
  into_->left = into_->left.subspan(bytes);
  if (into_->left.empty()) complete(over);
}

void InStream::complete(std::vector<TransferId>& over) {
  const std::optional<TransferId> id = std::exchange(into_, std::nullopt)->id;
  if (id) {
    over.push_back(*id);
    return;
  }
  Kept& kept = kept_.back();
  kept.complete = true;
  if (kept.receive) take_kept(kept_.end() - 1, *kept.receive, over);
}

Status InStream::write_notices() {
  while (!notices_.empty()) {
    const ConstByteSpan bytes = std::as_bytes(std::span(&notices_.front(), 1)).subspan(notice_sent_);
    const Transfer done = socket_->write(std::span(&bytes, 1));
    if (done.state == Transfer::State::kWouldBlock) return {};
    if (done.state != Transfer::State::kSome) return Status::aborted(platform::errno_text(done.error));
    notice_sent_ += done.bytes;
    if (notice_sent_ < sizeof(Notice)) continue;
    notice_sent_ = 0;
    notices_.pop_front();
  }
  return {};
}

void InStream::close() {
  socket_.reset();
  posted_.clear();
  kept_.clear();
  offers_.clear();
  into_.reset();
}

}  // namespace roundelay::collective::tcp
