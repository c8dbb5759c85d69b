#include "compress/quantised/run.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace roundelay::compress::quantised {
namespace {

using kernels::EightBits;

constexpr DType kReal = DType::kFloat32;

std::byte* bytes_of(float* numbers) { return reinterpret_cast<std::byte*>(numbers); }

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
  const kernels::Chunking blocks{shard_.count, EightBits::kBlock};
  const Result<float*> marks = floats(blocks.chunks());
  if (!marks.ok()) return marks.status();
  marks_ = *marks;
  const Result<std::byte*> messages = workspace_.scratch(message_bytes(leaves_of({0, shard_.count}, sizes_)));
  if (!messages.ok()) return messages.status();
  messages_ = *messages;
  ROUNDELAY_RETURN_IF_ERROR(clear_padding());
  const kernels::ResidualState kept{bucket_.state.data(), nullptr, {}};
  return workspace_.math().accumulate({marks_, blocks.chunks()}, kept, values(), blocks,
                                      bucket_.reduction.dtype);
}

// Adds what rounding took from sums to the residual, which has the units of a node's part.
Status Run::keep_rounding(float* errors, const Slice& of) const {
  const Scale prescale = bucket_.reduction.prescale;
  if (prescale.factor == 0) return {};
  const double inverse = static_cast<double>(prescale.divisor) / prescale.factor;
  Arithmetic& math = workspace_.math();
  if (!prescale.identity()) {
    const Scale back{inverse, 1};
    ROUNDELAY_RETURN_IF_ERROR(math.scale(bytes_of(errors), of.count, kReal, back));
  }
  return math.keep(bytes_of(residual() + of.first), bytes_of(errors), of.count, kReal);
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
    const Slice& part = at.parts[member];
    const bool own = member == at.index();
    call.send_bytes.push_back(own ? 0 : EightBits{part.count}.bytes());
    call.receive_bytes.push_back(own ? 0 : own_bytes);
    if (own) continue;
    if (sums_ == nullptr) {
      kernels::quantise(to, residual() + part.first, marks_ + part.first / EightBits::kBlock, part.count);
    } else {
      float* const sums = sums_ + (part.first - at.whole.first);
      kernels::quantise(to, sums, nullptr, part.count);
      const Status bad = keep_rounding(sums, part);
      if (!bad.ok()) return bad;
    }
    to += call.send_bytes.back();
  }
  return call;
}

// Copies the own part: it is not rounded on its way to this rank. An overflow becomes NaN, as on others' way.
void Run::own_part(const Level& level, float* to, bool first) const {
  const Slice& own = level.own();
  float* const from = first ? residual() + own.first : sums_ + (own.first - level.whole.first);
  std::copy_n(from, own.count, to);
  if (!first) return;
  for (std::size_t begin = 0; begin < own.count; begin += EightBits::kBlock) {
    const std::size_t size = std::min(EightBits::kBlock, own.count - begin);
    if (std::isfinite(marks_[(own.first + begin) / EightBits::kBlock]))
      std::fill_n(from + begin, size, 0.0F);
    else
      std::fill_n(to + begin, size, std::numeric_limits<float>::quiet_NaN());
  }
}

Status Run::add(std::size_t level) {
  workspace_.span("sum");
  const Level& at = levels_[level];
  const std::size_t count = at.own().count, bytes = EightBits{count}.bytes();
  const Result<float*> memory = floats(2 * count);
  if (!memory.ok()) return memory.status();
  float* const sums = *memory;
  float* const part = sums + count;
  Arithmetic& math = workspace_.math();
  const Scale prescale = level == 0 ? bucket_.reduction.prescale : Scale{};
  ROUNDELAY_RETURN_IF_ERROR(math.clear(bytes_of(sums), count * sizeof(float)));
  const std::byte* from = at.received;
  for (std::size_t member = 0; member < at.parts.size(); ++member) {
    if (member == at.index()) {
      own_part(at, part, level == 0);
    } else {
      kernels::dequantise(part, from, count);
      from += bytes;
    }
    if (!prescale.identity()) ROUNDELAY_RETURN_IF_ERROR(math.scale(bytes_of(part), count, kReal, prescale));
    ROUNDELAY_RETURN_IF_ERROR(math.keep(bytes_of(sums), bytes_of(part), count, kReal));
  }
  sums_ = sums;
  return {};
}

Status Run::finish() {
  workspace_.span("quantisation");
  const Slice& own = levels_.back().own();
  kernels::quantise(messages_ + bytes_before(levels_.size()), sums_, nullptr, own.count);
  return keep_rounding(sums_, own);
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
  auto* numbers = reinterpret_cast<float*>(values());
  if (dtype != kReal) {
    const Result<float*> wide = floats(shard_.count);
    if (!wide.ok()) return wide.status();
    numbers = *wide;
  }
  const std::byte* from = messages_;
  for (const Slice& leaf : leaves_of({0, shard_.count}, sizes_)) {
    kernels::dequantise(numbers + leaf.first, from, leaf.count);
    from += EightBits{leaf.count}.bytes();
  }
  Arithmetic& math = workspace_.math();
  const Scale scale = scales_of(bucket_.reduction.scale, place_).between;
  if (!scale.identity()) ROUNDELAY_RETURN_IF_ERROR(math.scale(bytes_of(numbers), shard_.count, kReal, scale));
  if (dtype == kReal) return {};
  const kernels::GpuCopy narrowed{values(), bytes_of(numbers), shard_.count, dtype, kReal};
  return math.copy({&narrowed, 1});
}

}  // namespace roundelay::compress::quantised
