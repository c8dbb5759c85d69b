// The control plane over TCP: one connection between any two ranks that talk, made when it is first needed.
//
// Connecting. A rank that has a message connects to the other (dials). Each proves to the other that it
// belongs to the job, and sends a greeting (greeting.h). Messages follow only after that, so a connection
// that is given up has carried none. When two ranks dial each other at once, the lower rank's connection is
// kept. The higher rank drops its own when the lower rank's greeting arrives. The lower rank parks the higher
// rank's connection and uses it only if its own attempt fails.
//
// Loss. If an established connection ends or fails, that peer is lost forever, unless it said goodbye: then
// it has left in order. Connections of strangers are closed silently.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/annotations.h"
#include "base/group.h"
#include "channel/channel.h"
#include "channel/tcp/tcp_links.h"
#include "connect/connection_table.h"
#include "connect/tcp_address.h"
#include "platform/tcp/epoll.h"

namespace roundelay::channel {

class TcpChannel final : public Channel {
 public:
  // Makes a channel. `identity`: this rank's Hello, rank included, and the job's secret. `tcp_addresses` are
  // TcpListener::address_bytes() of all ranks, by world rank. Errors: kInternal (a TCP address is
  // unreadable), kUnavailable (out of descriptors).
  static Result<std::unique_ptr<TcpChannel>> create(const Group& world, connect::Identity identity,
                                                    std::span<const Bytes> tcp_addresses,
                                                    connect::TcpListener listener);
  ~TcpChannel() override;

  // Waits until the connection to `peer` is established; its loss is noticed from then on. Ranks connect to
  // rank 0 at init. Errors: kAborted (`peer` is lost, which receive() reports too, or has left, or the
  // deadline passed), kUnavailable (closed).
  Status connect(int peer, Deadline deadline) EXCLUDES(mutex_);

  Status send(int to, ConstByteSpan message) override EXCLUDES(mutex_);
  std::optional<Incoming> receive() override EXCLUDES(mutex_);
  void wait(Deadline deadline) override EXCLUDES(mutex_);
  void set_polling(bool polling) override EXCLUDES(mutex_);
  void wait_polling(Deadline deadline, Duration polling) override EXCLUDES(mutex_);
  void wake() override EXCLUDES(mutex_);
  void close(Deadline deadline) override EXCLUDES(mutex_);

 private:
  static constexpr std::uint64_t kWakerTag = 0;  // the other tags are ConnectionTable's

  TcpChannel(int rank, std::size_t ranks, connect::Identity identity, connect::TcpListener listener,
             platform::Epoll epoll, platform::Epoll gate, platform::EventFd waker);

  void handle(std::span<const platform::Epoll::Event> events) REQUIRES(mutex_);
  // A thread that waits sleeps at the gate. One that polls, or works on connections, sleeps in epoll_.
  enum class Sleeper : unsigned char { kWaits, kPolls, kConnects };
  void poll(Sleeper sleeper, Deadline deadline) EXCLUDES(mutex_);
  void set_gate(bool open) REQUIRES(mutex_);
  [[nodiscard]] bool has_sleepers() const REQUIRES(mutex_);
  void wake_if_received() REQUIRES(mutex_);
  void signal() REQUIRES(mutex_);
  void acknowledge_wake() REQUIRES(mutex_);
  void shut() REQUIRES(mutex_);

  const int rank_;
  const std::size_t ranks_;
  // Their wait() is called without mutex_.
  platform::Epoll epoll_;  // all sockets, and the waker
  platform::Epoll gate_;   // epoll_, unless a thread polls: the kernel would wake all threads for each event
  const platform::EventFd waker_;

  Mutex mutex_;
  connect::ConnectionTable connections_ GUARDED_BY(mutex_);
  TcpLinks links_ GUARDED_BY(mutex_);
  int at_gate_ GUARDED_BY(mutex_) = 0;                   // threads in gate_.wait()
  int in_epoll_ GUARDED_BY(mutex_) = 0;                  // threads in epoll_.wait()
  bool polling_ GUARDED_BY(mutex_) = false;              // the gate is closed
  bool signalled_ GUARDED_BY(mutex_) = false;            // the waker is readable
  bool drain_after_waiters_ GUARDED_BY(mutex_) = false;  // the last thread that sleeps drains the waker
  bool closing_ GUARDED_BY(mutex_) = false;              // close() was called: no new messages
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace roundelay::channel
