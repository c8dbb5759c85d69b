#include "collective/tcp/out_stream.h"

#include <algorithm>
#include <array>
#include <span>

namespace roundelay::collective::tcp {

using platform::Transfer;

void OutStream::send(TransferId id, ConstByteSpan data, Notice tag) {
  Message message{id, {data.size(), tag}, data};
  if (data.size() > kMostSmall) {
    const auto notice = std::find(notices_.begin(), notices_.end(), tag);
    if (notice == notices_.end()) {
      held_.push_back(message);
      return;
    }
    notices_.erase(notice);
  }
  queue_.push_back(message);
}

// Takes a notice: the first large message of that tag may be sent.
void OutStream::allow(Notice tag) {
  const auto message =
      std::find_if(held_.begin(), held_.end(), [&](const Message& held) { return held.header.tag == tag; });
  if (message == held_.end()) {
    notices_.push_back(tag);
    return;
  }
  queue_.push_back(*message);
  held_.erase(message);
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
    over.push_back(queue_.front().id);
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
      if (arriving_.complete()) allow(arriving_.next());
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
