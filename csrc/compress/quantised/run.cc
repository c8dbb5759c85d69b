#include "compress/quantised/run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace roundelay::compress::quantised {
namespace {

using kernels::EightBits;

constexpr DType kReal = DType::kFloat32;

std::byte* bytes_of(float* numbers) { return reinterpret_cast<std::byte*>(numbers); }

// Clears what a rank has kept of blocks whose sums have overflowed. Such a step is skipped, and what stays of
// it would count in the next one. The other ranks do not know which of them has the cause.
void forget_overflows(float* kept, const std::byte* sums, std::size_t count) {
  for (std::size_t first = 0; first < count; first += EightBits::kBlock) {
    float scale = 0;
    std::memcpy(&scale, sums + EightBits{first}.bytes(), sizeof scale);
    if (std::isnan(scale)) std::fill_n(kept + first, std::min(EightBits::kBlock, count - first), 0.0F);
  }
}

}  // namespace

Run::Run(Workspace& workspace, const Bucket& bucket)
    : workspace_(workspace),
      bucket_(bucket),
      place_(place_in(workspace)),
      shard_(shard_of(bucket.count, place_)) {
  Slice whole{0, shard_.count};
  for (collective::Fabric* fabric : workspace.across()) {
    const Group& group = fabric->group();
    sizes_.push_back(group.size());
    levels_.push_back({fabric, whole, parts_of(whole, group.size())});
    whole = levels_.back().own();
  }
}

std::byte* Run::values() const {
  return bucket_.buffer.data() + shard_.first * size_of(bucket_.reduction.dtype);
}

Result<float*> Run::floats(std::size_t count) const {
  const Result<std::byte*> memory = workspace_.scratch(count * sizeof(float));
  if (!memory.ok()) return memory.status();
  return reinterpret_cast<float*>(*memory);
}

// Padding has the NaN of an overflow for ever, as nobody writes there.
Status Run::clear_padding() const {
  if (bucket_.parameters.empty()) return {};
  const std::size_t size = size_of(bucket_.reduction.dtype), end = shard_.first + shard_.count;
  std::size_t from = shard_.first;
  const auto clear_until = [&](std::size_t next) -> Status {
    next = std::min(next, end);
    if (next <= from) return {};
    return workspace_.math().clear(bucket_.buffer.data() + from * size, (next - from) * size);
  };
  for (const Slice& parameter : bucket_.parameters) {
    ROUNDELAY_RETURN_IF_ERROR(clear_until(parameter.first));
    from = std::max(from, parameter.first + parameter.count);
  }
  return clear_until(end);
}

Status Run::begin() {
  const Result<std::byte*> messages = workspace_.scratch(message_bytes(leaves_of({0, shard_.count}, sizes_)));
  if (!messages.ok()) return messages.status();
  messages_ = *messages;
  return clear_padding();
}

// Moves the node's sums into the residual, and returns it.
Result<float*> Run::accumulate(const Slice& tile) const {
  float* const kept = residual() + tile.first;
  const DType dtype = bucket_.reduction.dtype;
  const Status bad =
      workspace_.math().keep(bytes_of(kept), values() + tile.first * size_of(dtype), tile.count, dtype);
  if (!bad.ok()) return bad;
  return kept;
}

// Writes sums in 8 bits. What rounding took from them goes to the residual, which has the units of a node's
// part.
Status Run::quantise_sums(std::byte* to, float* sums, const Slice& tile) const {
  kernels::quantise(to, sums, tile.count);
  const Scale prescale = bucket_.reduction.prescale;
  if (prescale.factor == 0) return {};
  Arithmetic& math = workspace_.math();
  if (!prescale.identity()) {
    const Scale back{static_cast<double>(prescale.divisor) / prescale.factor, 1};
    ROUNDELAY_RETURN_IF_ERROR(math.scale(bytes_of(sums), tile.count, kReal, back));
  }
  return math.keep(bytes_of(residual() + tile.first), bytes_of(sums), tile.count, kReal);
}

// Writes another member's part. At the first level it comes from the residual.
Status Run::write(std::byte* to, const Level& level, const Slice& part) const {
  return for_tiles(part, [&](const Slice& tile, std::size_t bytes) -> Status {
    if (sums_ != nullptr) return quantise_sums(to + bytes, sums_ + (tile.first - level.whole.first), tile);
    const Result<float*> kept = accumulate(tile);
    if (kept.ok()) kernels::quantise(to + bytes, *kept, tile.count);
    return kept.status();
  });
}

Result<collective::AlltoallCall> Run::send(std::size_t level) {
  workspace_.span("quantisation");
  Level& at = levels_[level];
  const Result<std::byte*> out = workspace_.scratch(message_bytes(at.parts));
  if (!out.ok()) return out.status();
  const std::size_t own_bytes = EightBits{at.own().count}.bytes(), others = at.parts.size() - 1;
  const Result<std::byte*> in = workspace_.scratch(others * own_bytes);
  if (!in.ok()) return in.status();
  at.received = *in;
  collective::AlltoallCall call;
  call.stream = workspace_.stream();
  call.input = *out;
  call.output = {at.received, others * own_bytes};
  std::byte* to = *out;
  for (std::size_t member = 0; member < at.parts.size(); ++member) {
    const bool own = member == at.index();
    call.send_bytes.push_back(own ? 0 : EightBits{at.parts[member].count}.bytes());
    call.receive_bytes.push_back(own ? 0 : own_bytes);
    if (own) continue;
    const Status bad = write(to, at, at.parts[member]);
    if (!bad.ok()) return bad;
    to += call.send_bytes.back();
  }
  return call;
}

// Takes a tile of the own part: it is not rounded on its way to this rank.
Status Run::take_own(float* to, const Level& level, const Slice& tile) const {
  if (sums_ != nullptr) {
    std::copy_n(sums_ + (tile.first - level.whole.first), tile.count, to);
    return {};
  }
  const Result<float*> kept = accumulate(tile);
  if (kept.ok()) kernels::move_exactly(to, *kept, tile.count);
  return kept.status();
}

Status Run::add(std::size_t level) {
  workspace_.span("sum");
  const Level& at = levels_[level];
  const Slice& own = at.own();
  const std::size_t message = EightBits{own.count}.bytes();
  const Result<float*> sums = floats(own.count), tile_of_one = floats(std::min(own.count, kTile));
  if (!sums.ok() || !tile_of_one.ok()) return sums.ok() ? tile_of_one.status() : sums.status();
  float* const part = *tile_of_one;
  Arithmetic& math = workspace_.math();
  const Scale prescale = level == 0 ? bucket_.reduction.prescale : Scale{};
  Status bad = for_tiles(own, [&](const Slice& tile, std::size_t bytes) -> Status {
    float* const sum = *sums + (tile.first - own.first);
    const std::byte* from = at.received + bytes;
    ROUNDELAY_RETURN_IF_ERROR(math.clear(bytes_of(sum), tile.count * sizeof(float)));
    for (std::size_t member = 0; member < at.parts.size(); ++member) {
      if (member == at.index()) {
        ROUNDELAY_RETURN_IF_ERROR(take_own(part, at, tile));
      } else {
        kernels::dequantise(part, from, tile.count);
        from += message;
      }
      if (!prescale.identity())
        ROUNDELAY_RETURN_IF_ERROR(math.scale(bytes_of(part), tile.count, kReal, prescale));
      ROUNDELAY_RETURN_IF_ERROR(math.keep(bytes_of(sum), bytes_of(part), tile.count, kReal));
    }
    return {};
  });
  sums_ = *sums;
  return bad;
}

Status Run::finish() {
  workspace_.span("quantisation");
  std::byte* const to = messages_ + bytes_before(levels_.size());
  const Slice& own = levels_.back().own();
  return for_tiles(own, [&](const Slice& tile, std::size_t bytes) {
    return quantise_sums(to + bytes, sums_ + (tile.first - own.first), tile);
  });
}

// Returns the bytes of the messages of one part at a level.
std::size_t Run::bytes_within(std::size_t level, const Slice& part) const {
  return message_bytes(leaves_of(part, std::span(sizes_).subspan(level + 1)));
}

// Returns the place, among all messages, of those of what this rank has at a level.
std::size_t Run::bytes_before(std::size_t level) const {
  std::size_t before = 0;
  for (std::size_t outer = 0; outer < level; ++outer) {
    for (std::size_t member = 0; member < levels_[outer].index(); ++member)
      before += bytes_within(outer, levels_[outer].parts[member]);
  }
  return before;
}

collective::AllgatherCall Run::gather(std::size_t level) {
  const Level& at = levels_[level];
  collective::AllgatherCall call;
  call.stream = workspace_.stream();
  std::size_t bytes = 0;
  for (const Slice& part : at.parts) {
    call.receive_bytes.push_back(bytes_within(level, part));
    bytes += call.receive_bytes.back();
  }
  call.input = messages_ + bytes_before(level + 1);
  call.output = {messages_ + bytes_before(level), bytes};
  return call;
}

Status Run::take() {
  workspace_.span("sum");
  const DType dtype = bucket_.reduction.dtype;
  const Scale scale = scales_of(bucket_.reduction.scale, place_).between;
  const Result<float*> wide = floats(std::min(shard_.count, kTile));
  if (!wide.ok()) return wide.status();
  Arithmetic& math = workspace_.math();
  const auto take_tile = [&](const Slice& tile, const std::byte* from) -> Status {
    std::byte* const to = values() + tile.first * size_of(dtype);
    float* const numbers = dtype == kReal ? reinterpret_cast<float*>(to) : *wide;
    kernels::dequantise(numbers, from, tile.count);
    forget_overflows(residual() + tile.first, from, tile.count);
    if (!scale.identity()) ROUNDELAY_RETURN_IF_ERROR(math.scale(bytes_of(numbers), tile.count, kReal, scale));
    if (dtype == kReal) return {};
    const kernels::GpuCopy narrowed{to, bytes_of(numbers), tile.count, dtype, kReal};
    return math.copy({&narrowed, 1});
  };
  const std::byte* from = messages_;
  for (const Slice& leaf : leaves_of({0, shard_.count}, sizes_)) {
    ROUNDELAY_RETURN_IF_ERROR(
        for_tiles(leaf, [&](const Slice& tile, std::size_t bytes) { return take_tile(tile, from + bytes); }));
    from += EightBits{leaf.count}.bytes();
  }
  return {};
}

}  // namespace roundelay::compress::quantised
