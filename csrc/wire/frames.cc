#include "wire/frames.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

namespace roundelay::wire {

Status check_length(ConstByteSpan message) {
  if (message.size() <= kLongestFrame) return {};
  return Status::invalid("a control message of " + std::to_string(message.size()) +
                         " bytes is over the limit of " + std::to_string(kLongestFrame));
}

std::array<std::byte, kFrameHeader> frame_header(std::size_t size) {
  std::array<std::byte, kFrameHeader> header;
  for (std::size_t i = 0; i < kFrameHeader; ++i) header[i] = static_cast<std::byte>((size >> (8 * i)) & 0xff);
  return header;
}

ByteSpan FrameReader::space() {
  if (!large_.empty()) return ByteSpan(large_).subspan(large_filled_);
  if (buffer_.empty()) buffer_.resize(kBuffer);
  if (begin_ > 0) {
    // The caller has called next() until it returned nothing, so this moves at most a part of one message.
    std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  return ByteSpan(buffer_).subspan(end_);
}

ByteSpan FrameReader::lacking() {
  const ByteSpan all = space();
  if (!large_.empty()) return all;
  std::size_t whole = kFrameHeader;
  if (buffered() >= kFrameHeader) whole += std::min(next_size(), longest_);
  return all.first(std::min(all.size(), whole - buffered()));
}

// Returns the length that the buffer begins with.
std::size_t FrameReader::next_size() const {
  std::size_t size = 0;
  for (std::size_t i = 0; i < kFrameHeader; ++i)
    size |= std::to_integer<std::size_t>(buffer_[begin_ + i]) << (8 * i);
  return size;
}

void FrameReader::filled(std::size_t bytes) {
  if (large_.empty()) {
    end_ += bytes;
  } else {
    large_filled_ += bytes;
  }
}

Result<std::optional<Bytes>> FrameReader::next() {
  if (!large_.empty()) {
    if (large_filled_ < large_.size()) return std::optional<Bytes>();
    return std::optional<Bytes>(std::exchange(large_, {}));
  }
  if (said_goodbye_ || buffered() < kFrameHeader) return std::optional<Bytes>();
  const std::size_t size = next_size();
  if (size == kGoodbye) {
    said_goodbye_ = true;
    return std::optional<Bytes>();
  }
  if (size > longest_) {
    return Status::internal("a message of " + std::to_string(size) + " bytes was announced, " +
                            std::to_string(longest_) + " are allowed");
  }
  if (kFrameHeader + size > kBuffer) {
    begin_ += kFrameHeader;
    large_.resize(size);
    large_filled_ = std::min(size, buffered());
    std::memcpy(large_.data(), buffer_.data() + begin_, large_filled_);
    begin_ += large_filled_;
    return next();
  }
  if (buffered() < kFrameHeader + size) return std::optional<Bytes>();
  const auto* start = buffer_.data() + begin_ + kFrameHeader;
  begin_ += kFrameHeader + size;
  if (begin_ == end_) begin_ = end_ = 0;
  return std::optional<Bytes>(Bytes(start, start + size));
}

void SendQueue::push(ConstByteSpan message, std::size_t sent) {
  assert(sent == 0 || frames_.empty());
  const auto header = frame_header(message.size());
  Bytes frame;
  frame.reserve(header.size() + message.size());
  frame.insert(frame.end(), header.begin(), header.end());
  frame.insert(frame.end(), message.begin(), message.end());
  if (frames_.empty()) head_sent_ = sent;
  frames_.push_back(std::move(frame));
}

void SendQueue::push_goodbye() {
  const auto header = frame_header(kGoodbye);
  if (frames_.empty()) head_sent_ = 0;
  frames_.emplace_back(header.begin(), header.end());
}

std::size_t SendQueue::peek(std::span<ConstByteSpan> parts) const {
  const std::size_t count = std::min(parts.size(), frames_.size());
  for (std::size_t i = 0; i < count; ++i) parts[i] = frames_[i];
  if (count > 0) parts[0] = parts[0].subspan(head_sent_);
  return count;
}

void SendQueue::advance(std::size_t bytes) {
  head_sent_ += bytes;
  while (!frames_.empty() && head_sent_ >= frames_.front().size()) {
    head_sent_ -= frames_.front().size();
    frames_.pop_front();
  }
}

void SendQueue::clear() {
  frames_.clear();
  head_sent_ = 0;
}

}  // namespace roundelay::wire
