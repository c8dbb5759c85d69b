// The two ends of the stream of messages from one member of a node to another.
//
// A message goes into the ring only when the receiver has told that its receive is posted. So the bytes at
// the head of a ring always have a place to go, and no message blocks another one for ever.
//
// One thread at a time. The peer may be another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/program/transport.h"
#include "platform/shm/ring.h"

namespace roundelay::collective::shm {

// Comes before each message in the ring.
struct MessageHeader {
  std::int64_t tag = 0;
  std::uint64_t bytes = 0;
};

// What a step of one end has done.
struct StreamStep {
  bool wakes_peer = false;  // the peer has something to do
  bool moved = false;
};

// The sender's end.
class OutStream {
 public:
  // Reserves a part of the ring's memory. It is called before the first write there.
  using Allocate = std::function<Status(ByteRange part)>;
  OutStream(platform::Ring bytes, platform::Ring notices, Allocate allocate)
      : bytes_(bytes), notices_(notices), allocate_(std::move(allocate)) {}

  void post(TransferId id, ConstByteSpan data, int tag);
  // Writes what has room, up to a ring of bytes, and adds the transfers that are over to `over`. Errors:
  // those of `allocate`.
  Result<StreamStep> step(std::vector<TransferId>& over);
  // Returns whether step() has something to do. If not, the peer wakes this member when it has.
  bool has_work();
  // Returns whether the peer reads no more.
  [[nodiscard]] bool peer_gone() const { return bytes_.reader_closed(); }
  // Tells the peer that nothing more comes.
  void close() { notices_.close_reader(); }

 private:
  struct Send {
    TransferId id;
    MessageHeader header;
    ConstByteSpan data;
  };

  bool read_notices();
  Result<bool> write(std::vector<TransferId>& over);
  Status reserve(std::size_t bytes);

  platform::Ring bytes_, notices_;
  const Allocate allocate_;
  std::size_t reserved_ = 0;                 // bytes of the ring, from its begin
  std::uint64_t total_ = 0;                  // bytes that were written so far
  std::map<int, std::deque<Send>> waiting_;  // sends of a tag without a posted receive
  std::map<int, std::uint64_t> awaited_;     // posted receives of a tag without a send
  std::deque<Send> ready_;                   // sends with a posted receive; the first one is being written
  std::size_t written_ = 0;                  // bytes of the first one, its header included
};

// The receiver's end.
class InStream {
 public:
  InStream(platform::Ring bytes, platform::Ring notices) : bytes_(bytes), notices_(notices) {}

  void post(TransferId id, ByteSpan data, int tag);
  // Reads what is there, up to a ring of bytes, and adds the transfers that are over to `over`. Errors:
  // kInternal (sender and receiver disagree on a message).
  Result<StreamStep> step(std::vector<TransferId>& over);
  bool has_work();
  // Returns whether nothing more comes.
  [[nodiscard]] bool peer_gone() const { return notices_.reader_closed(); }
  // Tells the peer that nothing more is read.
  void close() { bytes_.close_reader(); }

 private:
  struct Receive {
    TransferId id;
    ByteSpan data;
  };

  bool write_notices();
  Result<bool> read(std::vector<TransferId>& over);

  platform::Ring bytes_, notices_;
  std::deque<std::int32_t> untold_;  // tags of receives of which the sender does not know
  std::map<int, std::deque<Receive>> posted_;
  MessageHeader header_{};  // of the message that is being read
  std::size_t read_ = 0;    // its bytes so far, its header included
};

}  // namespace roundelay::collective::shm
