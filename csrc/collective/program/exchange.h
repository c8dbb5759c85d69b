// The transfers of one call: a program (program.h) posts sends and receives here and waits for them.
#pragma once

#include <coroutine>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/program/local_work.h"
#include "collective/program/scratch.h"
#include "collective/program/transport.h"

namespace roundelay::collective {

// A transfer of one call. Transfers are numbered in the order of posting.
using Transfer = std::uint32_t;
inline constexpr Transfer kNoTransfer = UINT32_MAX;  // a wait for it ends at once

// One thread at a time. It keeps the first error. The program does not see errors: it is not resumed after
// one.
class Exchange {
 public:
  // `members` are ascending indices of the transport's group, this one among them. All other functions count
  // members by their position in this list. `tag` and `tag` + 1 belong to this call alone, which has
  // this mark. `transport`, `work` and `pool` outlive it.
  Exchange(Transport& transport, LocalWork& work, std::vector<int> members, ScratchPool& pool, int tag,
           const CallMark& mark = {});
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }

  // Post a transfer. The memory stays valid until the transfer is done. Messages to a peer match its receives
  // in the order of posting, in each of the streams 0 and 1 by itself. Return kNoTransfer after an error.
  Transfer send(int peer, ConstByteSpan data, int stream = 0);
  Transfer receive(int peer, ByteSpan data, int stream = 0);
  // Returns the work that needs no peer.
  [[nodiscard]] LocalWork& work() const { return work_; }
  // Returns memory that is valid until the call ends.
  std::byte* scratch(std::size_t bytes);

  struct Waiting {
    Exchange* exchange;
    [[nodiscard]] bool await_ready() const { return exchange->all_done(); }
    void await_suspend(std::coroutine_handle<> /*program*/) const noexcept {}
    void await_resume() const noexcept {}
  };
  // A program co_awaits them: one or two transfers, all that were posted before `end`, or all.
  Waiting done(Transfer first, Transfer second = kNoTransfer);
  Waiting done_before(Transfer end);
  Waiting all() { return done_before(next()); }
  // Returns the number of the next transfer.
  [[nodiscard]] Transfer next() const { return static_cast<Transfer>(posted_.size()); }

  // Tests the transfers that the program waits for. True: all are done. False after an error.
  bool all_done();
  [[nodiscard]] const Status& error() const { return error_; }
  [[nodiscard]] int waiting_for() const { return waiting_for_; }  // an index in the whole group, or -1
  // Gives up the scratch memory for good, because the medium may still write to it.
  void abandon() { abandoned_ = true; }

 private:
  struct Posted {
    TransferId id;
    int peer;  // an index in the whole group
    bool done;
  };
  Transfer post(int peer, Result<TransferId> id);
  bool finished(Transfer transfer);

  [[nodiscard]] int in_group(int peer) const { return members_[static_cast<std::size_t>(peer)]; }

  Transport& transport_;
  LocalWork& work_;
  const std::vector<int> members_;
  const int index_;
  ScratchPool& pool_;
  const int tag_;
  const CallMark mark_;
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
