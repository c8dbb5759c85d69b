#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/group.h"
#include "collective/engine/slots.h"
#include "collective/fabric.h"
#include "collective/program/transport.h"
#include "collective/tcp/in_stream.h"
#include "collective/tcp/out_stream.h"
#include "collective/tcp/plane.h"
#include "platform/tcp/epoll.h"

namespace roundelay::collective::tcp {

// A Transport over connections of its own: one or more streams (message.h) for each member that sends to
// another one. A long message is cut into as many parts, one for each stream. Who tests a transfer moves the
// bytes of all.
class TcpTransport final : public Transport, public Waker {
 public:
  // Errors: kUnavailable (out of descriptors).
  static Result<std::unique_ptr<TcpTransport>> create(std::shared_ptr<TcpPlane> plane, const Group& group,
                                                      StreamNumber first, std::shared_ptr<StreamEnds> ends);
  TcpTransport(std::shared_ptr<TcpPlane> plane, const Group& group, StreamNumber first,
               std::shared_ptr<StreamEnds> ends, platform::Epoll epoll);
  ~TcpTransport() override;

  [[nodiscard]] int index() const override { return group_.index; }
  [[nodiscard]] int size() const override { return group_.size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override;
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override;
  Result<bool> test(TransferId id) override;
  void set_mark(const CallMark& mark) override { mark_ = mark; }
  // Sleeps until a connection of the group has something, or wake().
  [[nodiscard]] Nap nap(Backoff& backoff) override;
  // Ends all transfers with an error. No memory of theirs is used any more. If the cause is that calls
  // differ, connections stay open.
  void give_up(const Status& cause);
  // Ends a nap. Any thread.
  void wake() override { ends_->ring(); }

 private:
  using Interest = platform::Epoll::Interest;
  template <typename Stream>
  struct End {
    Stream stream{};
    Interest interest = Interest::kRead;
    bool dialled = false;
  };
  // The streams to one member, or from it. After the first error none of them is used.
  template <typename Stream>
  struct Direction {
    std::vector<End<Stream>> ends{};
    Status error{};
    bool stays_open = false;  // after the error
  };
  struct Peer {
    Direction<OutStream> out;
    Direction<InStream> in;
  };
  struct Slot {
    std::size_t peer = 0;
    bool sends = false;
    std::size_t parts_left = 0;
    bool asked = false;  // test() has said that it is not over
  };
  static constexpr std::uint64_t kDoorbellTag = 0;
  // The place of a stream, which its tag in epoll tells.
  struct Place {
    std::size_t peer, number;
    bool incoming;
    [[nodiscard]] std::uint64_t tag() const {
      return 1 + 2 * (peer * kMostStreams + number) + (incoming ? 1 : 0);
    }
    static Place of(std::uint64_t tag);
  };

  // Calls post(number, offset, bytes) for each part of a message.
  template <typename Post>
  Result<TransferId> post(int peer, bool sends, std::size_t bytes, const Post& post_part);
  void progress();
  void take_ends();
  void handle(const platform::Epoll::Event& event);
  void use_out(const Place& place, bool reads);
  void use_in(const Place& place, const platform::Epoll::Event& event);
  template <typename Stream>
  void conclude(const Place& place, Direction<Stream>& direction, const Status& result);
  template <typename Stream>
  void stop(Direction<Stream>& direction, const Status& error, bool differs);
  void stop_peer(Peer& peer, const Status& error, bool differs);
  template <typename Stream>
  void connect(const Place& place, Direction<Stream>& direction, platform::Socket socket);
  [[nodiscard]] Label label(int tag, std::size_t message_bytes) const;
  [[nodiscard]] Status failure(std::size_t peer, const Status& cause) const;

  const std::shared_ptr<TcpPlane> plane_;
  const Group group_;
  const StreamNumber first_;
  const std::shared_ptr<StreamEnds> ends_;
  platform::Epoll epoll_;
  CallMark mark_;            // of the messages that are posted next
  std::vector<Peer> peers_;  // this member too, unused
  Slots<Slot> slots_;
  std::size_t untested_ = 0;      // asked transfers that are over, and test() has not said so
  std::vector<TransferId> over_;  // parts that write() and read() have ended
};

}  // namespace roundelay::collective::tcp
