// Messages on a byte stream: a length of four bytes, little-endian, then the message. A goodbye ends the
// stream; it is a length that no message can have.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::wire {

inline constexpr std::size_t kFrameHeader = 4;                       // bytes of the length
inline constexpr std::size_t kLongestFrame = std::size_t{64} << 20;  // bytes of a message, without its header
inline constexpr std::size_t kGoodbye = 0xffffffff;                  // replaces the length

// Returns an error if the message is too long: kInvalidArgument.
Status check_length(ConstByteSpan message);

// Returns the header of a message of this size.
std::array<std::byte, kFrameHeader> frame_header(std::size_t size);

// Splits a byte stream into messages. The caller reads into space(), reports the bytes with filled(), and
// calls next() until it returns nothing. One thread at a time.
class FrameReader {
 public:
  explicit FrameReader(std::size_t longest) : longest_(longest) {}
  // Sets the longest message that the peer may send.
  void set_longest(std::size_t longest) { longest_ = longest; }

  // Returns memory for the next read; never empty. A large message is read directly into its own memory.
  ByteSpan space();
  // Returns the part of space() that the next message, or its length, still lacks, so that nothing behind it
  // is read.
  ByteSpan lacking();
  // Tells how many bytes the caller has read into space().
  void filled(std::size_t bytes);
  // Returns the next complete message; nothing if there is none yet. Errors: kInternal (a length is over the
  // limit); the stream is then useless.
  Result<std::optional<Bytes>> next();
  // Returns whether next() has met the peer's goodbye. No more messages come.
  [[nodiscard]] bool said_goodbye() const { return said_goodbye_; }

 private:
  static constexpr std::size_t kBuffer = std::size_t{16} << 10;

  [[nodiscard]] std::size_t buffered() const { return end_ - begin_; }
  [[nodiscard]] std::size_t next_size() const;

  std::size_t longest_;
  Bytes buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Bytes large_;  // a message that does not fit into buffer_
  std::size_t large_filled_ = 0;
  bool said_goodbye_ = false;
};

// Output that the medium has not taken yet. One thread at a time.
class SendQueue {
 public:
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  // Appends a message. The medium has already taken the first `sent` bytes of its frame, header included.
  void push(ConstByteSpan message, std::size_t sent = 0);
  // Appends a goodbye, the last frame.
  void push_goodbye();
  // Fills `parts` with the next bytes to send, and returns how many parts it filled. The queue keeps the
  // memory.
  std::size_t peek(std::span<ConstByteSpan> parts) const;
  // Removes bytes that the medium has taken.
  void advance(std::size_t bytes);
  void clear();

 private:
  std::deque<Bytes> frames_;
  std::size_t head_sent_ = 0;  // bytes of the first frame that the medium has taken
};

}  // namespace roundelay::wire
