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

// A Transport over connections of its own: a stream (message.h) for each member that sends to another one.
// Who tests a transfer moves the bytes of all.
class TcpTransport final : public Transport, public Waker {
 public:
  // Errors: kUnavailable (out of descriptors).
  static Result<std::unique_ptr<TcpTransport>> create(std::shared_ptr<TcpPlane> plane, const Group& group,
                                                      std::uint64_t stream, std::shared_ptr<StreamEnds> ends);
  TcpTransport(std::shared_ptr<TcpPlane> plane, const Group& group, std::uint64_t stream,
               std::shared_ptr<StreamEnds> ends, platform::Epoll epoll);
  ~TcpTransport() override;

  [[nodiscard]] int index() const override { return group_.index; }
  [[nodiscard]] int size() const override { return group_.size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override;
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override;
  Result<bool> test(TransferId id) override;
  // Sleeps until a connection of the group has something, or wake().
  [[nodiscard]] Nap nap(Backoff& backoff) override;
  // Ends all transfers with an error. No memory of theirs is used any more.
  void give_up();
  // Ends a nap. Any thread.
  void wake() override { ends_->ring(); }

 private:
  using Interest = platform::Epoll::Interest;
  template <typename Stream>
  struct End {
    Stream stream;
    Status error;  // the first one; the stream is closed then
    Interest interest = Interest::kRead;
  };
  struct Peer {
    End<OutStream> out;
    End<InStream> in;
    bool dialled = false;
  };
  struct Slot {
    int peer = 0;
    bool sends = false;
    bool over = false;
  };
  static constexpr std::uint64_t kDoorbellTag = 0;
  // The tags of a peer's streams.
  static std::uint64_t tag_of(std::size_t peer, bool incoming) { return 1 + 2 * peer + (incoming ? 1 : 0); }

  TransferId acquire(int peer, bool sends);
  void progress();
  void take_ends();
  void handle(const platform::Epoll::Event& event);
  void write(std::size_t peer);
  void read(std::size_t peer, const platform::Epoll::Event& event);
  template <typename Stream>
  void conclude(std::size_t peer, End<Stream>& end, const Status& result);
  template <typename Stream>
  void connect(std::size_t peer, End<Stream>& end, platform::Socket socket);
  [[nodiscard]] Status failure(std::size_t peer, const Status& cause) const;
  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  const std::shared_ptr<TcpPlane> plane_;
  const Group group_;
  const std::uint64_t stream_;
  const std::shared_ptr<StreamEnds> ends_;
  platform::Epoll epoll_;
  std::vector<Peer> peers_;  // this member too, unused
  Slots<Slot> slots_;
  std::vector<TransferId> over_;  // transfers that write() and read() have ended
};

}  // namespace roundelay::collective::tcp
