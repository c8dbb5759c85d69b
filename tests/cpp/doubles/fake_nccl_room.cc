#include "tests/cpp/doubles/fake_nccl_room.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernels.h"

namespace roundelay::doubles {
namespace {

using Kind = FakeNcclPart::Kind;
using Bytes = std::vector<std::byte>;

bool agree(const FakeNcclPart& a, const FakeNcclPart& b) {
  return a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && a.root == b.root &&
         a.reduction.op == b.reduction.op && a.reduction.average == b.reduction.average;
}

Bytes reduce(const std::vector<FakeNcclPart>& parts, std::size_t count) {
  const FakeNcclPart& first = parts.front();
  std::vector<const void*> from;
  for (const FakeNcclPart& part : parts) from.push_back(part.from);
  const Scale scale{1.0, first.reduction.average ? static_cast<std::int64_t>(parts.size()) : 1};
  Bytes result(count * size_of(first.dtype));
  kernels::reduce_parts(result.data(), from, count, first.dtype, first.reduction.op, {}, scale);
  return result;
}

Bytes concatenated(const std::vector<FakeNcclPart>& parts) {
  Bytes all;
  for (const FakeNcclPart& part : parts) all.insert(all.end(), part.from, part.from + part.count);
  return all;
}

void carry_out(const std::vector<FakeNcclPart>& parts) {
  const FakeNcclPart& first = parts.front();
  const bool scatters = first.kind == Kind::kReduceScatter;
  Bytes result;
  if (first.kind == Kind::kAllGather) {
    result = concatenated(parts);
  } else if (first.kind == Kind::kBroadcast) {
    const std::byte* const from = parts[static_cast<std::size_t>(first.root)].from;
    result.assign(from, from + first.count);
  } else {
    result = reduce(parts, first.count * (scatters ? parts.size() : 1));
  }
  const std::size_t share = scatters ? result.size() / parts.size() : result.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (share > 0) std::memcpy(parts[i].to, result.data() + (scatters ? i * share : 0), share);
  }
}

}  // namespace

FakeNcclRoom::FakeNcclRoom(int members) : members_(static_cast<std::size_t>(members)) {}

std::shared_ptr<FakeNcclRoom> FakeNcclRoom::of(const platform::NcclId& id, int members) {
  static Mutex mutex;
  static auto& rooms = *new std::map<platform::NcclId, std::weak_ptr<FakeNcclRoom>>;
  const MutexLock lock(mutex);
  std::shared_ptr<FakeNcclRoom> room = rooms[id].lock();
  if (!room) rooms[id] = room = std::make_shared<FakeNcclRoom>(members);
  return room;
}

void FakeNcclRoom::enter() {
  const MutexLock lock(mutex_);
  ++entered_;
}

bool FakeNcclRoom::complete() const {
  const MutexLock lock(mutex_);
  return entered_ >= static_cast<int>(size());
}

void FakeNcclRoom::bring(Round& round, int index, const FakeNcclPart& part) {
  round.parts.resize(size());
  for (const auto& other : round.parts) {
    if (other && !agree(*other, part)) {
      error_ = Status::aborted("NCCL: members disagree on a collective (fake)");
    }
  }
  round.parts[static_cast<std::size_t>(index)] = part;
  if (++round.there < static_cast<int>(size()) || !error_.ok()) return;
  std::vector<FakeNcclPart> parts;
  for (const auto& one : round.parts) parts.push_back(*one);
  carry_out(parts);
  round.done = true;
  changed_.notify_all();
}

void FakeNcclRoom::meet(int index, const FakeNcclPart& part) {
  const MutexLock lock(mutex_);
  if (member(index).left) return;
  const std::uint64_t number = member(index).next_round++;
  Round& round = rounds_[number];
  bring(round, index, part);
  while (!round.done && !member(index).left) changed_.wait_until(mutex_, Deadline::never());
  if (!round.done) {
    // No member writes to its memory any more, and the round never completes.
    round.parts[static_cast<std::size_t>(index)].reset();
    --round.there;
  } else if (++round.gone == static_cast<int>(size())) {
    rounds_.erase(number);
  }
}

void FakeNcclRoom::block(int index) {
  while (!member(index).left) changed_.wait_until(mutex_, Deadline::never());
}

bool FakeNcclRoom::wait_for_letter(const Box& box, int index) {
  while (box.empty() && !member(index).left) changed_.wait_until(mutex_, Deadline::never());
  return !member(index).left;
}

void FakeNcclRoom::take_letter(Box& box, const FakeNcclMessage& message, int index) {
  if (!wait_for_letter(box, index)) return;
  const LetterPtr letter = box.front();
  if (letter->bytes != message.bytes) {
    error_ = Status::aborted("NCCL: a message of another size than is received (fake)");
    return block(index);
  }
  box.pop_front();
  std::memcpy(message.to, letter->data, letter->bytes);
  letter->taken = true;
  changed_.notify_all();
}

void FakeNcclRoom::exchange(int index, const std::vector<FakeNcclMessage>& messages) {
  const MutexLock lock(mutex_);
  std::vector<std::pair<Box*, LetterPtr>> sent;
  for (const FakeNcclMessage& message : messages) {
    if (message.from == nullptr || member(index).left) continue;
    Box& box = mail_[{index, message.peer}];
    box.push_back(std::make_shared<Letter>(Letter{message.from, message.bytes}));
    sent.emplace_back(&box, box.back());
  }
  changed_.notify_all();
  for (const FakeNcclMessage& message : messages) {
    if (message.from == nullptr) take_letter(mail_[{message.peer, index}], message, index);
  }
  for (const auto& [box, letter] : sent) {
    while (!letter->taken && !member(index).left) changed_.wait_until(mutex_, Deadline::never());
    if (!letter->taken) std::erase(*box, letter);
  }
}

void FakeNcclRoom::leave(int index) {
  const MutexLock lock(mutex_);
  member(index).left = true;
  changed_.notify_all();
}

void FakeNcclRoom::expect(int index) {
  const MutexLock lock(mutex_);
  ++member(index).expected;
}

void FakeNcclRoom::finished(int index) {
  const MutexLock lock(mutex_);
  --member(index).expected;
  changed_.notify_all();
}

bool FakeNcclRoom::wait_finished(int index, Deadline deadline) {
  const MutexLock lock(mutex_);
  while (member(index).expected > 0 && !member(index).left && !deadline.passed()) {
    changed_.wait_until(mutex_, deadline);
  }
  return member(index).expected == 0 && !member(index).left;
}

Status FakeNcclRoom::error() const {
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace roundelay::doubles
