// One call's view of the medium: what a program (program.h) sends, receives and waits for.
#pragma once

#include <coroutine>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/scratch.h"
#include "collective/transport.h"

namespace roundelay::collective {

// A transfer of this call; numbered in the order of posting.
using Transfer = std::uint32_t;
inline constexpr Transfer kNoTransfer = UINT32_MAX;  // waiting for it is no wait

// Errors do not reach the program: the first one is kept, and the program is never resumed after it.
class Exchange {
 public:
  // Between `members`, ascending indices of the transport's group, this one among them; in what follows they
  // count from 0. `tag` and its successor belong to this call.
  Exchange(Transport& transport, std::vector<int> members, ScratchPool& pool, int tag);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }

  // Messages to one peer match its receives in the order of posting, in each of the two streams by itself.
  Transfer send(int peer, ConstByteSpan data, int stream = 0);
  Transfer receive(int peer, ByteSpan data, int stream = 0);
  // Memory until the call ends.
  std::byte* scratch(std::size_t bytes);

  struct Waiting {
    Exchange* exchange;
    [[nodiscard]] bool await_ready() const { return exchange->all_done(); }
    void await_suspend(std::coroutine_handle<> /*program*/) const noexcept {}
    void await_resume() const noexcept {}
  };
  // For co_await: one or two transfers, or all that were posted before `end`, or all.
  Waiting done(Transfer first, Transfer second = kNoTransfer);
  Waiting done_before(Transfer end);
  Waiting all() { return done_before(next()); }
  [[nodiscard]] Transfer next() const { return static_cast<Transfer>(posted_.size()); }

  // Tests what is awaited. False after an error.
  bool all_done();
  [[nodiscard]] const Status& error() const { return error_; }
  [[nodiscard]] int waiting_for() const { return waiting_for_; }  // the group's index; -1: nobody
  // The medium may still write into this call's scratch memory.
  void abandon() { abandoned_ = true; }

 private:
  struct Posted {
    Ticket ticket;
    int peer;  // the group's index
    bool done;
  };
  Transfer post(int peer, Result<Ticket> ticket);
  bool finished(Transfer transfer);

  [[nodiscard]] int in_group(int peer) const { return members_[static_cast<std::size_t>(peer)]; }

  Transport& transport_;
  const std::vector<int> members_;
  const int index_;
  ScratchPool& pool_;
  const int tag_;
  std::vector<Posted> posted_;
  std::vector<ScratchPool::Block> blocks_;
  Transfer awaited_[2] = {kNoTransfer, kNoTransfer};
  Transfer awaited_before_ = 0;
  Transfer all_done_before_ = 0;
  int waiting_for_ = -1;
  bool abandoned_ = false;
  Status error_;
};

}  // namespace roundelay::collective
