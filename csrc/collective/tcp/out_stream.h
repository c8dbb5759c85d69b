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

// The sending end of a stream (message.h). One thread at a time. Never blocks. After an error it is useless.
class OutStream {
 public:
  // Queues a message. The data stays unchanged until write() says that the transfer is over. Errors:
  // kMismatch (the receiver waits for a message with another mark).
  Status send(TransferId id, ConstByteSpan data, const Label& label);
  // Sets the connection, once.
  void connect(platform::Socket socket) { socket_.emplace(std::move(socket)); }
  [[nodiscard]] bool connected() const { return socket_.has_value(); }
  [[nodiscard]] const platform::Fd& fd() const { return socket_->fd(); }

  // Writes what the socket takes, and appends the transfers that are over. Errors: kAborted, what the system
  // says.
  Status write(std::vector<TransferId>& over);
  // Takes the notices that have arrived. Errors: kMismatch; kAborted, also if the receiver has closed the
  // stream while a message is not sent.
  Status read_notices();
  [[nodiscard]] static bool wants_input() { return true; }  // notices
  // Returns whether there is something that the socket did not take.
  [[nodiscard]] bool wants_output() const { return !queue_.empty(); }
  // Returns whether the receiver has closed the stream, in order: nothing more can be sent.
  [[nodiscard]] bool ended() const { return ended_; }
  // Closes the connection. No memory of a transfer is used any more.
  void close();

 private:
  struct Message {
    TransferId id;
    Header header;
    ConstByteSpan data;
  };
  Status allow(const Notice& notice);
  void advance(std::size_t bytes, std::vector<TransferId>& over);

  std::optional<platform::Socket> socket_;
  std::deque<Message> queue_;   // may be sent, in this order; offers too
  std::size_t sent_ = 0;        // bytes of the first one, with its header, that the socket has taken
  std::deque<Message> held_;    // large ones without a notice
  std::deque<Notice> notices_;  // those without a message
  Arriving<Notice> arriving_;
  bool ended_ = false;
};

}  // namespace roundelay::collective::tcp
