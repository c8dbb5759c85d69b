#include "collective/algorithms/shards.h"

#include <algorithm>
#include <utility>

#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {
namespace {

constexpr std::size_t kScratchBytes = 4 << 20;      // bounds the memory for pieces, where members are few
constexpr std::size_t kLeastPieceBytes = 16 << 10;  // bounds the size of a piece, where they are many
constexpr std::size_t kAlignment = 64;              // a cache line; a multiple of every element's size

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Shards::Shards(Exchange& net, const Reduction& how, const std::byte* input, std::vector<std::size_t> bytes)
    : net_(net), how_(how), input_(input), index_(net.index()), size_(net.size()), bytes_(std::move(bytes)) {
  std::size_t offset = 0;
  for (const std::size_t shard : bytes_) {
    offsets_.push_back(offset);
    offset += shard;
  }
  const auto others = static_cast<std::size_t>(size_ - 1);
  const std::size_t largest = *std::max_element(bytes_.begin(), bytes_.end());
  const std::size_t most =
      std::clamp(aligned(kScratchBytes / kWindow / others), kLeastPieceBytes, kPieceBytes);
  pieces_ = std::max<std::size_t>(1, (largest + most - 1) / most);
  piece_bytes_ = aligned((largest + pieces_ - 1) / pieces_);
  window_ = std::min(kWindow, pieces_);
  scratch_ = net.scratch(window_ * others * piece_bytes_);
  received_.assign(pieces_ * bytes_.size(), kNoTransfer);
  sent_.assign(pieces_ * bytes_.size(), kNoTransfer);
  parts_.resize(bytes_.size());
}

ByteRange Shards::range(int member, std::size_t piece) const {
  const auto shard = static_cast<std::size_t>(member);
  const std::size_t begin = std::min(piece * piece_bytes_, bytes_[shard]);
  return {offsets_[shard] + begin, std::min(piece_bytes_, bytes_[shard] - begin)};
}

void Shards::post_up_to(std::size_t piece) {
  for (; posted_ < std::min(piece + window_, pieces_); ++posted_) {
    const std::size_t mine = range(index_, posted_).bytes;
    for (int step = 1; step < size_ && mine > 0; ++step) {
      received_[unit(posted_, step)] = net_.receive(source(step), {slot(posted_, step), mine});
    }
    for (int step = 1; step < size_; ++step) {
      const auto [offset, bytes] = range(target(step), posted_);
      if (bytes > 0) sent_[unit(posted_, step)] = net_.send(target(step), {input_ + offset, bytes});
    }
  }
}

void Shards::reduce(std::size_t piece, std::byte* to) {
  const auto [offset, bytes] = range(index_, piece);
  parts_[static_cast<std::size_t>(index_)] = input_ + offset;
  for (int step = 1; step < size_; ++step) {
    parts_[static_cast<std::size_t>(source(step))] = slot(piece, step);
  }
  net_.work().reduce_parts(how_, to, parts_, bytes / size_of(how_.dtype));
}

}  // namespace roundelay::collective
