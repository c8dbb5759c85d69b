// Ring allreduce. The buffer is cut into one shard for each member. In steps 0..P-2 (reduce-scatter) every
// member sends a shard's partial sum to the right and adds its own part to the one that comes from the left.
// Then it has the finished shard of its own number, and scales it. In steps P-1..2P-3 (all-gather) finished
// shards travel round. Shards are cut into pieces, and a piece goes on as soon as it is ready, so that
// reducing one overlaps receiving the next, also across steps. An all-gather is the second half, of parts of
// any sizes.
#include <algorithm>
#include <vector>

#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {
namespace {

// The pieces of step 0 leave while later steps' pieces do, so they need an order of their own.
constexpr int kLaterSteps = 0;
constexpr int kFirstStep = 1;

// The arithmetic of one call. A unit is a piece of the shard that a member receives in a step.
class Cut {
 public:
  Cut(const AllreduceCall& call, int size, int index)
      : base_(call.buffer.data()),
        element_(size_of(call.dtype)),
        count_(call.buffer.bytes / element_),
        size_(static_cast<std::size_t>(size)),
        index_(static_cast<std::size_t>(index)) {
    const std::size_t largest_shard = (count_ + size_ - 1) / size_;
    pieces_ = std::max<std::size_t>(1, (largest_shard * element_ + kPieceBytes - 1) / kPieceBytes);
    piece_count_ = (largest_shard + pieces_ - 1) / pieces_;
  }

  [[nodiscard]] std::size_t pieces() const { return pieces_; }
  [[nodiscard]] std::size_t piece_bytes() const { return piece_count_ * element_; }
  [[nodiscard]] std::size_t reduced_units() const { return (size_ - 1) * pieces_; }
  [[nodiscard]] std::size_t units() const { return 2 * reduced_units(); }
  // Returns whether this member's own shard is finished after this unit.
  [[nodiscard]] bool finishes_shard(std::size_t unit) const { return unit / pieces_ == size_ - 2; }
  // Returns where a received unit belongs. The unit sent as number n is the one received as n - pieces().
  [[nodiscard]] ByteSpan received(std::size_t unit) const {
    return place(unit / pieces_ + 2, unit % pieces_);
  }
  [[nodiscard]] ByteSpan first_sent(std::size_t unit) const { return place(1, unit % pieces_); }

 private:
  [[nodiscard]] ByteSpan place(std::size_t shards_left, std::size_t piece) const {
    const std::size_t shard = (index_ + 2 * size_ - shards_left) % size_;
    const std::size_t base = count_ / size_, longer = count_ % size_;  // the first `longer` have one more
    const std::size_t begin = shard * base + std::min(shard, longer);
    const std::size_t end = begin + base + (shard < longer ? 1 : 0);
    const std::size_t from = std::min(begin + piece * piece_count_, end);
    const std::size_t to = std::min(from + piece_count_, end);
    return {base_ + from * element_, (to - from) * element_};
  }

  std::byte* base_;
  std::size_t element_, count_, size_, index_;
  std::size_t pieces_ = 1, piece_count_ = 0;
};

void add(LocalWork& work, const Reduction& how, ByteSpan own, const std::byte* incoming, bool finished) {
  const std::size_t count = own.size() / size_of(how.dtype);
  work.reduce(how, own.data(), incoming, count);
  if (finished && !how.scale.identity()) {
    work.scale_copy(own.data(), own.data(), count, how.dtype, how.scale);
  }
}

}  // namespace

Program ring_allreduce(Exchange& net, const AllreduceCall& call) {
  const Cut cut(call, net.size(), net.index());
  net.work().scale_copy(call.buffer.data(), call.buffer.data(), call.buffer.bytes / size_of(call.dtype),
                        call.dtype, call.prescale);
  const int right = (net.index() + 1) % net.size();
  const int left = (net.index() + net.size() - 1) % net.size();
  const std::size_t window = std::min(kWindow, static_cast<std::size_t>(net.size()) * cut.pieces());
  std::byte* const scratch = net.scratch(window * cut.piece_bytes());
  std::vector<Transfer> sent(cut.units(), kNoTransfer);
  std::vector<Transfer> received(cut.units(), kNoTransfer);

  std::size_t posted = 0;
  for (std::size_t unit = 0; unit < cut.units(); ++unit) {
    for (; posted < std::min(unit + window, cut.units()); ++posted) {
      if (posted < cut.pieces()) {
        const ByteSpan mine = cut.first_sent(posted);
        if (!mine.empty()) sent[posted] = net.send(right, mine, kFirstStep);
      }
      ByteSpan target = cut.received(posted);
      if (target.empty()) continue;  // fewer elements than members, or the shorter shards' last piece
      if (posted < cut.reduced_units()) {
        target = {scratch + (posted % window) * cut.piece_bytes(), target.size()};
      } else {
        // The finished shard overwrites the partial sum that left from there one round before.
        co_await net.done(sent[posted - cut.reduced_units()]);
      }
      received[posted] = net.receive(left, target, posted < cut.pieces() ? kFirstStep : kLaterSteps);
    }
    co_await net.done(received[unit]);
    const ByteSpan place = cut.received(unit);
    if (place.empty()) continue;
    if (unit < cut.reduced_units()) {
      add(net.work(), call, place, scratch + (unit % window) * cut.piece_bytes(), cut.finishes_shard(unit));
    }
    if (unit + cut.pieces() < cut.units()) sent[unit + cut.pieces()] = net.send(right, place, kLaterSteps);
  }
  co_await net.all();
}

// In step s a member sends the part that it got in the step before, at first its own.
Program ring_all_gather(Exchange& net, const AllgatherCall& call) {
  const int size = net.size(), right = (net.index() + 1) % size, left = (net.index() + size - 1) % size;
  std::vector<ByteSpan> parts;
  std::size_t begin = 0;
  for (const std::size_t bytes : call.receive_bytes) {
    parts.push_back(call.output.subspan(begin, bytes));
    begin += bytes;
  }
  const ByteSpan own = parts[static_cast<std::size_t>(net.index())];
  if (!own.empty() && own.data() != call.input) net.work().copy(own.data(), call.input, own.size());
  for (int step = 1; step < size; ++step) {
    const ByteSpan given = parts[static_cast<std::size_t>((net.index() + size - step + 1) % size)];
    const ByteSpan taken = parts[static_cast<std::size_t>((net.index() + size - step) % size)];
    const Transfer incoming = taken.empty() ? kNoTransfer : net.receive(left, taken);
    const Transfer outgoing = given.empty() ? kNoTransfer : net.send(right, given);
    co_await net.done(incoming, outgoing);
  }
}

}  // namespace roundelay::collective
