#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/program/transport.h"
#include "collective/tcp/message.h"
#include "platform/tcp/socket.h"

namespace roundelay::collective::tcp {

// The receiving end of a stream (message.h). One thread at a time. Never blocks. After an error it is
// useless.
class InStream {
 public:
  // Small messages without a receive are kept up to this many bytes. Then nothing more is read before a
  // receive takes one, so that a sender cannot fill this member's memory.
  static constexpr std::size_t kMostKept = std::size_t{16} << 20;

  // Posts a receive. It may be over at once: then appends it to `over`. Errors: kAborted (a message of
  // another size has come), kMismatch (one with another mark).
  Status receive(TransferId id, ByteSpan data, const Label& label, std::vector<TransferId>& over);
  // Sets the connection, once.
  void connect(platform::Socket socket) {
    socket_.emplace(std::move(socket));
    buffer_.resize(kBuffer);
  }
  [[nodiscard]] bool connected() const { return socket_.has_value(); }
  [[nodiscard]] const platform::Fd& fd() const { return socket_->fd(); }

  // Reads what has arrived, and appends the transfers that are over. Errors: kAborted, what the system says;
  // also if the sender has closed the stream before it sent what is posted.
  Status read(std::vector<TransferId>& over);
  // Writes the notices that the socket takes. Errors: kAborted.
  Status write_notices();
  [[nodiscard]] bool wants_input() const { return kept_bytes_ <= kMostKept; }
  [[nodiscard]] bool wants_output() const { return !notices_.empty(); }
  // Returns whether the sender has closed the stream, in order: nothing more comes.
  [[nodiscard]] bool ended() const { return ended_; }
  // Closes the connection. No memory of a transfer is used any more.
  void close();

 private:
  static constexpr std::size_t kBuffer = 4 << 10;  // more than this of a large message is never copied

  struct Posted {
    TransferId id;
    ByteSpan data;
    Label label;
  };
  // A small message that came before its receive.
  struct Kept {
    Label label;
    Bytes bytes;
    bool complete;
    std::optional<Posted> receive;  // was posted since, and gets the bytes when they are complete
  };
  // The message whose bytes arrive: into a receive's memory, or into the last of kept_.
  struct Into {
    std::optional<TransferId> id;
    ByteSpan left;
  };
  Status end();
  platform::Transfer read_some(std::vector<TransferId>& over);
  Status parse(std::vector<TransferId>& over);
  Status begin(const Header& header, std::vector<TransferId>& over);
  void forget_offer(std::uint64_t tag);
  void advance(std::size_t bytes, std::vector<TransferId>& over);
  void complete(std::vector<TransferId>& over);
  void take_kept(const std::deque<Kept>::iterator& kept, Posted receive, std::vector<TransferId>& over);

  std::optional<platform::Socket> socket_;
  std::deque<Posted> posted_;
  std::deque<Kept> kept_;
  std::size_t kept_bytes_ = 0;
  std::deque<Label> offers_;  // of large messages that have not come
  std::optional<Into> into_;
  Arriving<Header> arriving_;
  Bytes buffer_;  // what was read behind the bytes of a message
  std::size_t begin_ = 0, end_ = 0;
  std::deque<Notice> notices_;  // those that the socket has not taken
  bool ended_ = false;
  std::size_t notice_sent_ = 0;  // bytes of the first of them that it has
};

}  // namespace roundelay::collective::tcp
