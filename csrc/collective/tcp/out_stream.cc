#include "collective/tcp/out_stream.h"

#include <algorithm>
#include <array>
#include <span>

namespace roundelay::collective::tcp {

using platform::Transfer;

Status OutStream::send(TransferId id, ConstByteSpan data, const Label& label) {
  Message message{id, {data.size(), label}, data};
  for (const Notice& notice : notices_) {
    if (differ(label, notice)) return calls_differ(label, notice);
  }
  if (data.size() > kMostSmall) {
    const auto notice = std::find_if(notices_.begin(), notices_.end(),
                                     [&](const Notice& one) { return one.tag == label.tag; });
    if (notice == notices_.end()) {
      held_.push_back(message);
      if (label.mark.set()) queue_.push_back({id, {kOffer, label}, {}});
      return {};
    }
    notices_.erase(notice);
  }
  queue_.push_back(message);
  return {};
}

// Takes a notice: the first large message of that tag may be sent.
Status OutStream::allow(const Notice& notice) {
  for (const Message& held : held_) {
    if (differ(held.header.label, notice)) return calls_differ(held.header.label, notice);
  }
  const auto message = std::find_if(held_.begin(), held_.end(),
                                    [&](const Message& held) { return held.header.label.tag == notice.tag; });
  if (message == held_.end()) {
    notices_.push_back(notice);
    return {};
  }
  queue_.push_back(*message);
  held_.erase(message);
  return {};
}

Status OutStream::write(std::vector<TransferId>& over) {
  while (!queue_.empty()) {
    std::array<ConstByteSpan, platform::Socket::kMostParts> parts;
    std::size_t count = 0;
    std::size_t skipped = sent_;
    for (auto message = queue_.begin(); message != queue_.end() && count + 2 <= parts.size(); ++message) {
      for (const ConstByteSpan whole : {std::as_bytes(std::span(&message->header, 1)), message->data}) {
        const std::size_t skip = std::min(skipped, whole.size());
        skipped -= skip;
        if (skip < whole.size()) parts[count++] = whole.subspan(skip);
      }
    }
    const Transfer done = socket_->write(std::span(parts).first(count));
    if (done.state == Transfer::State::kWouldBlock) return {};
    if (done.state != Transfer::State::kSome) return Status::aborted(platform::errno_text(done.error));
    advance(done.bytes, over);
  }
  return {};
}

// Removes bytes that the socket has taken.
void OutStream::advance(std::size_t bytes, std::vector<TransferId>& over) {
  sent_ += bytes;
  while (!queue_.empty() && sent_ >= sizeof(Header) + queue_.front().data.size()) {
    sent_ -= sizeof(Header) + queue_.front().data.size();
    if (queue_.front().header.bytes != kOffer) over.push_back(queue_.front().id);
    queue_.pop_front();
  }
}

Status OutStream::read_notices() {
  std::array<std::byte, 64 * sizeof(Notice)> buffer;
  while (true) {
    const Transfer done = socket_->read(ByteSpan(buffer));
    if (done.state == Transfer::State::kWouldBlock) return {};
    if (done.state == Transfer::State::kEnd) {
      if (!queue_.empty() || !held_.empty()) return Status::aborted(kClosed);
      ended_ = true;
      close();
      return {};
    }
    if (done.state == Transfer::State::kError) return Status::aborted(platform::errno_text(done.error));
    for (std::size_t taken = 0; taken < done.bytes;) {
      taken += arriving_.take(buffer.data() + taken, done.bytes - taken);
      if (arriving_.complete()) ROUNDELAY_RETURN_IF_ERROR(allow(arriving_.next()));
    }
    if (done.bytes < buffer.size()) return {};
  }
}

void OutStream::close() {
  socket_.reset();
  queue_.clear();
  held_.clear();
}

}  // namespace roundelay::collective::tcp
