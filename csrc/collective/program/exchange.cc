#include "collective/program/exchange.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective {

Exchange::Exchange(Transport& transport, LocalWork& work, std::vector<int> members, ScratchPool& pool,
                   int tag, const CallMark& mark)
    : transport_(transport),
      work_(work),
      members_(std::move(members)),
      index_(static_cast<int>(std::lower_bound(members_.begin(), members_.end(), transport.index()) -
                              members_.begin())),
      pool_(pool),
      tag_(tag),
      mark_(mark) {
  posted_.reserve(16);
}

Exchange::~Exchange() {
  for (ScratchPool::Block& block : blocks_) {
    if (abandoned_) {
      ScratchPool::abandon(std::move(block));
    } else {
      pool_.release(std::move(block));
    }
  }
}

Transfer Exchange::send(int peer, ConstByteSpan data, int stream) {
  if (!error_.ok()) return kNoTransfer;
  transport_.set_mark(mark_);
  return post(in_group(peer), transport_.send(in_group(peer), data, tag_ + stream));
}

Transfer Exchange::receive(int peer, ByteSpan data, int stream) {
  if (!error_.ok()) return kNoTransfer;
  transport_.set_mark(mark_);
  return post(in_group(peer), transport_.receive(in_group(peer), data, tag_ + stream));
}

Transfer Exchange::post(int peer, Result<TransferId> id) {
  if (!id.ok()) {
    error_ = id.status();
    return kNoTransfer;
  }
  posted_.push_back({*id, peer, false});
  return next() - 1;
}

std::byte* Exchange::scratch(std::size_t bytes) {
  blocks_.push_back(pool_.acquire(bytes));
  return blocks_.back().memory.get();
}

Exchange::Waiting Exchange::done(Transfer first, Transfer second) {
  awaited_[0] = first;
  awaited_[1] = second;
  awaited_before_ = 0;
  return Waiting{this};
}

Exchange::Waiting Exchange::done_before(Transfer end) {
  awaited_[0] = awaited_[1] = kNoTransfer;
  awaited_before_ = end;
  return Waiting{this};
}

bool Exchange::finished(Transfer transfer) {
  if (transfer == kNoTransfer) return true;
  Posted& posted = posted_[transfer];
  if (posted.done) return true;
  Result<bool> done = transport_.test(posted.id);
  if (!done.ok()) error_ = done.status();
  posted.done = done.ok() && *done;
  if (!posted.done) waiting_for_ = transport_.waits_for_peer(posted.id) ? posted.peer : -1;
  return posted.done;
}

bool Exchange::all_done() {
  if (!error_.ok()) return false;
  for (const Transfer transfer : awaited_) {
    if (!finished(transfer)) return false;
  }
  for (; all_done_before_ < awaited_before_; ++all_done_before_) {
    if (!finished(all_done_before_)) return false;
  }
  waiting_for_ = -1;
  return true;
}

}  // namespace roundelay::collective
