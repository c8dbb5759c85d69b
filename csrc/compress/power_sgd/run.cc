#include "compress/power_sgd/run.h"

#include <algorithm>

#include "compress/copies.h"

namespace roundelay::compress::power_sgd {
namespace {

using kernels::GpuCopy;
using kernels::LowRankBlock;
using kernels::Vectors;

// Returns what the reduction makes of a sum of one.
double scale_of(const collective::Reduction& how) {
  const auto value_of = [](Scale scale) { return scale.factor / static_cast<double>(scale.divisor); };
  return value_of(how.prescale) * value_of(how.scale);
}

// Calls use(block) until it fails.
template <typename Use>
Status each_block(const Matrix& matrix, const Slice& range, Use use) {
  Status bad;
  matrix.each_block(range, [&](const Block& block) {
    if (bad.ok()) bad = use(block);
  });
  return bad;
}

}  // namespace

Run::Run(const Options& options, Workspace& workspace, const Bucket& bucket)
    : options_(options),
      math_(workspace.math()),
      bucket_(bucket),
      layout_(layout_of(options, {bucket.count, bucket.reduction.dtype, bucket.parameters})),
      dtype_(bucket.reduction.dtype),
      real_(kernels::residual_type(dtype_)),
      wire_type_(dtype_ == DType::kFloat32 ? options.wire_type.value_or(dtype_) : dtype_),
      place_(place_in(workspace)),
      shard_(shard_of(bucket.count, place_)),
      weight_(dtype_ == real_ ? 1 : place_.members) {
  const double scale = scale_of(bucket.reduction);
  if (scale != 0) share_ = place_.members / (scale * workspace.fabric().group().size());
}

Result<Run> Run::make(const Options& options, Workspace& workspace, const Bucket& bucket) {
  Run run(options, workspace, bucket);
  const FactorLayout& layout = run.layout_;
  const Result<std::byte*> factors = workspace.scratch((layout.left + layout.right) * size_of(run.real_));
  if (!factors.ok()) return factors.status();
  const std::size_t longest = std::max(layout.dense_elements + layout.left, layout.right);
  const Result<std::byte*> message = workspace.scratch(longest * size_of(run.wire_type_));
  if (!message.ok()) return message.status();
  std::size_t sums_bytes = 0;
  for (const Matrix& matrix : layout.matrices) {
    const std::size_t bytes =
        run.math_.project_back_scratch(matrix.rows, matrix.columns, matrix.rank, run.dtype_);
    sums_bytes = std::max(sums_bytes, bytes);
  }
  const Result<std::byte*> sums = workspace.scratch(sums_bytes);
  if (!sums.ok()) return sums.status();
  run.sums_ = *sums;
  run.factors_ = *factors;
  run.message_ = *message;
  return run;
}

collective::AllreduceCall Run::sum_of(std::size_t elements, const Workspace& workspace) const {
  collective::AllreduceCall call =
      allreduce_of({message_, 0, elements * size_of(wire_type_)}, bucket_, workspace);
  call.dtype = wire_type_;
  return call;
}

// Copies the dense elements to their places in the message, or back.
Status Run::copy_dense(bool back) const {
  Copies copies(math_);
  std::byte* sent = message_;
  for (const Slice& slice : layout_.dense) {
    std::byte* const own = bucket_.buffer.data() + slice.first * size_of(dtype_);
    ROUNDELAY_RETURN_IF_ERROR(copies.add(back ? GpuCopy{own, sent, slice.count, dtype_, wire_type_}
                                              : GpuCopy{sent, own, slice.count, wire_type_, dtype_}));
    sent += slice.count * size_of(wire_type_);
  }
  return copies.end();
}

// Copies `count` factors to the message, after its first `before` elements.
Status Run::send(const std::byte* factors, std::size_t count, std::size_t before) const {
  const GpuCopy item{message_ + before * size_of(wire_type_), factors, count, wire_type_, real_};
  return math_.copy({&item, 1});
}

Status Run::receive(std::byte* factors, std::size_t count, std::size_t before) const {
  const GpuCopy item{factors, message_ + before * size_of(wire_type_), count, real_, wire_type_};
  return math_.copy({&item, 1});
}

Vectors Run::left(const Matrix& matrix) const {
  return {factors_ + matrix.left * size_of(real_), matrix.rows, matrix.rank};
}

Vectors Run::right(const Matrix& matrix) const {
  return {factors_ + (layout_.left + matrix.right) * size_of(real_), matrix.columns, matrix.rank};
}

Vectors Run::last(const Matrix& matrix) const {
  const std::size_t residual = shard_capacity(bucket_.count, place_.shards);
  return {bucket_.state.data() + (residual + matrix.right) * size_of(real_), matrix.columns, matrix.rank};
}

LowRankBlock Run::block_of(const Matrix& matrix, const Block& block, Vectors left, Vectors right,
                           bool kept) const {
  const std::size_t at = matrix.slice.first + block.row * matrix.columns + block.column;
  const std::size_t size = size_of(real_);
  left.data += block.row * size;
  right.data += block.column * size;
  return {.values = bucket_.buffer.data() + at * size_of(dtype_),
          .residual = kept ? bucket_.state.data() + (at - shard_.first) * size : nullptr,
          .weight = static_cast<double>(weight_),
          .rows = block.rows,
          .columns = block.columns,
          .stride = matrix.columns,
          .left = left,
          .right = right};
}

Status Run::begin() const {
  ROUNDELAY_RETURN_IF_ERROR(copy_dense(false));
  ROUNDELAY_RETURN_IF_ERROR(math_.clear(factors_, (layout_.left + layout_.right) * size_of(real_)));
  if (bucket_.run > 0) return {};
  for (const Matrix& matrix : layout_.matrices) {
    const Vectors first = last(matrix);
    ROUNDELAY_RETURN_IF_ERROR(math_.renew(first, first, options_.seed + matrix.right, real_));
  }
  return {};
}

Status Run::project() const {
  for (const Matrix& matrix : layout_.matrices) {
    ROUNDELAY_RETURN_IF_ERROR(each_block(matrix, shard_, [&](const Block& block) {
      return math_.project(block_of(matrix, block, left(matrix), last(matrix), true), dtype_);
    }));
  }
  return send(factors_, layout_.left, layout_.dense_elements);
}

Status Run::project_back() const {
  ROUNDELAY_RETURN_IF_ERROR(copy_dense(true));
  ROUNDELAY_RETURN_IF_ERROR(receive(factors_, layout_.left, layout_.dense_elements));
  for (const Matrix& matrix : layout_.matrices) {
    ROUNDELAY_RETURN_IF_ERROR(math_.orthonormalise(left(matrix), real_));
    ROUNDELAY_RETURN_IF_ERROR(each_block(matrix, shard_, [&](const Block& block) {
      return math_.project_back(block_of(matrix, block, left(matrix), right(matrix), true), dtype_, sums_);
    }));
  }
  return send(factors_ + layout_.left * size_of(real_), layout_.right, 0);
}

// Expands the elements before the shard, in it, and after it.
Status Run::expand(const Matrix& matrix) const {
  const std::size_t end = shard_.first + shard_.count;
  const auto each = [&](const Slice& range, bool kept) {
    return each_block(matrix, range, [&](const Block& block) {
      return math_.expand(block_of(matrix, block, left(matrix), right(matrix), kept), share_, dtype_);
    });
  };
  ROUNDELAY_RETURN_IF_ERROR(each({0, shard_.first}, false));
  ROUNDELAY_RETURN_IF_ERROR(each(shard_, true));
  return each({end, bucket_.count - end}, false);
}

Status Run::finish() const {
  ROUNDELAY_RETURN_IF_ERROR(receive(factors_ + layout_.left * size_of(real_), layout_.right, 0));
  for (const Matrix& matrix : layout_.matrices) {
    ROUNDELAY_RETURN_IF_ERROR(expand(matrix));
    const std::uint64_t seed = options_.seed + matrix.right + (bucket_.run + 1) * layout_.right;
    ROUNDELAY_RETURN_IF_ERROR(math_.renew(last(matrix), right(matrix), seed, real_));
  }
  return {};
}

}  // namespace roundelay::compress::power_sgd
