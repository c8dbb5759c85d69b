#include "collective/shm/pair_streams.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "collective/shm/pair_rings.h"

namespace roundelay::collective::shm {
namespace {

// A ring's other end sees bytes when all of a copy are there. In pieces, both ends copy at once.
constexpr std::size_t kPiece = 64 << 10;
constexpr std::size_t kMostOfStep = 4 * kPiece;  // then other pairs have their turn

}  // namespace

void OutStream::post(TransferId id, ConstByteSpan data, int tag) {
  const Send send{id, {tag, data.size()}, data};
  const auto awaited = awaited_.find(tag);
  if (awaited == awaited_.end()) {
    waiting_[tag].push_back(send);
    return;
  }
  if (--awaited->second == 0) awaited_.erase(awaited);
  ready_.push_back(send);
}

bool OutStream::read_notices() {
  std::int32_t tag = 0;
  bool read = false;
  while (notices_.read(std::as_writable_bytes(std::span(&tag, 1))) > 0) {
    read = true;
    const auto waiting = waiting_.find(tag);
    if (waiting == waiting_.end()) {
      ++awaited_[tag];
      continue;
    }
    ready_.push_back(waiting->second.front());
    waiting->second.pop_front();
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  return read;
}

Result<bool> OutStream::write(std::vector<TransferId>& over) {
  std::size_t wrote = 0;
  while (!ready_.empty() && wrote < kMostOfStep) {
    const Send& send = ready_.front();
    const std::size_t head = std::min(written_, sizeof(MessageHeader));
    const ConstByteSpan data = send.data.subspan(written_ - head);
    const std::array parts = {std::as_bytes(std::span(&send.header, 1)).subspan(head),
                              data.first(std::min(data.size(), kPiece))};
    ROUNDELAY_RETURN_IF_ERROR(reserve(parts[0].size() + parts[1].size()));
    const std::size_t count = bytes_.write(parts);
    wrote += count;
    written_ += count;
    total_ += count;
    if (count < parts[0].size() + parts[1].size()) break;
    if (written_ < sizeof(MessageHeader) + send.data.size()) continue;
    over.push_back(send.id);
    ready_.pop_front();
    written_ = 0;
  }
  return wrote > 0;
}

// A pair that says little, such as a goodbye, takes little memory.
Status OutStream::reserve(std::size_t bytes) {
  const std::uint64_t end = std::min<std::uint64_t>(total_ + bytes, PairRings::kRingBytes);
  if (end <= reserved_) return {};
  const std::size_t until = std::max(std::bit_ceil(static_cast<std::size_t>(end)), Segment::kPageBytes);
  ROUNDELAY_RETURN_IF_ERROR(allocate_({reserved_, until - reserved_}));
  reserved_ = until;
  return {};
}

Result<StreamStep> OutStream::step(std::vector<TransferId>& over) {
  StreamStep step;
  step.moved = read_notices();
  step.wakes_peer = step.moved && notices_.take_wish_for_room();
  const Result<bool> wrote = write(over);
  if (!wrote.ok()) return wrote.status();
  if (*wrote) step = {.wakes_peer = true, .moved = true};
  return step;
}

bool OutStream::has_work() { return !notices_.empty() || (!ready_.empty() && bytes_.ask_for_room()); }

void InStream::post(TransferId id, ByteSpan data, int tag) {
  posted_[tag].push_back({id, data});
  untold_.push_back(tag);
}

bool InStream::write_notices() {
  bool wrote = false;
  while (!untold_.empty()) {
    const std::array parts = {std::as_bytes(std::span(&untold_.front(), 1))};
    if (notices_.write(parts) == 0) break;
    untold_.pop_front();
    wrote = true;
  }
  return wrote;
}

Result<bool> InStream::read(std::vector<TransferId>& over) {
  std::size_t moved = 0;
  const auto read_into = [&](ByteSpan memory) {
    const std::size_t count = bytes_.read(memory);
    read_ += count;
    moved += count;
    return count == memory.size();
  };
  while (moved < kMostOfStep) {
    if (read_ < sizeof(MessageHeader) &&
        !read_into(std::as_writable_bytes(std::span(&header_, 1)).subspan(read_)))
      break;
    const auto posted = posted_.find(static_cast<int>(header_.tag));
    if (posted == posted_.end()) return Status::internal("a message came that nobody receives");
    const Receive& receive = posted->second.front();
    if (receive.data.size() != header_.bytes)
      return Status::internal("sender and receiver disagree on a message's size");
    const ByteSpan left = receive.data.subspan(read_ - sizeof(MessageHeader));
    if (!read_into(left.first(std::min(left.size(), kPiece)))) break;
    if (read_ < sizeof(MessageHeader) + receive.data.size()) continue;
    over.push_back(receive.id);
    posted->second.pop_front();
    if (posted->second.empty()) posted_.erase(posted);
    read_ = 0;
  }
  return moved > 0;
}

Result<StreamStep> InStream::step(std::vector<TransferId>& over) {
  StreamStep step;
  const Result<bool> moved = read(over);
  if (!moved.ok()) return moved.status();
  step.moved = *moved;
  step.wakes_peer = *moved && bytes_.take_wish_for_room();
  if (write_notices()) step = {.wakes_peer = true, .moved = true};
  return step;
}

bool InStream::has_work() { return !bytes_.empty() || (!untold_.empty() && notices_.ask_for_room()); }

}  // namespace roundelay::collective::shm
