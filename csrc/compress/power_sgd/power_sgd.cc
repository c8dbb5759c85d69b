// PowerSGD (Vogels et al., arXiv 1905.13727, algorithms 1 and 2) on node sums: of each matrix of gradients,
// low-rank factors travel, and each step begins with the factors of the step before.
//
// A node adds up its gradients first, and each of its ranks takes a shard of the sums, as a reduce-scatter
// leaves them. In a flat group each rank is a node. Shard s has a residual e_s, which is zero at first. With
// g_s for the sums, N nodes, and Q for the right factors:
//   u_s = e_s + g_s
//   P = scale(sum over s of prescale(u_s Q))        an allreduce, with the parameters that go densely
//   P = orthonormal(P)                              Gram-Schmidt
//   Q = scale(sum over s of prescale(u_s^T P))      an allreduce
//   result = P Q^T
//   e_s = u_s - P Q^T / (N c)                       c: what scale and prescale make of 1
// u_s Q needs nothing but the shard's elements, which need not be whole rows. As P is orthonormal, P Q^T is
// the part of c u that lies in P's space, for u the sum over all shards; so the residuals together are u
// without that part: the sums of results and residuals are those of the gradients, within rounding.
//
// P's scale does not matter, since it becomes orthonormal, so both messages are reduced as the gradients
// would be. Where the wire or the bucket has a half type, messages are rounded, and what the rounding takes
// from P Q^T stays in the residual. Matrices of half buckets are added up in the node as averages, so that
// they do not overflow.
//
// Q is scaled to columns of length 1 before the next step, and a column that is zero is drawn anew: a matrix
// that was zero for a step, or has a smaller rank, does not lose columns for ever.
//
// If an element is not finite, all elements of P's row are not, and so P, Q and the matrix's result on all
// ranks: loss scaling sees the overflow. The residual and the factors then stay as they were.
//
// The state: a residual for each element of the bucket, of which a rank uses its shard's, and Q.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "compress/power_sgd/layout.h"
#include "compress/registry.h"

namespace roundelay::compress::power_sgd {
namespace {

using collective::AllreduceCall;
using collective::Calling;
using collective::Fabric;
using collective::Task;
using kernels::residual_type;
using kernels::Vectors;

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

BucketShape shape_of(const Bucket& bucket) {
  return {bucket.count, bucket.reduction.dtype, bucket.parameters};
}

// What one run works with.
struct Run {
  Layout layout;
  DType dtype, real, wire;
  Range shard;      // the elements that this rank works on
  double weight;    // of an element of the shard, in units of the gradients' sum
  double share;     // of the result that the shard's node has sent
  std::byte* left;  // scratch memory: the factors, in `real`
  std::byte* right;
  std::byte* message;  // dense elements and left factors, or right factors, in `wire`
};

class PowerSgd final : public Technique {
 public:
  PowerSgd(Options options, std::string text) : options_(std::move(options)), text_(std::move(text)) {}

  std::string_view name() const override { return "power_sgd"; }
  std::string text() const override { return text_; }
  Status check(const BucketShape& shape) const override;
  std::size_t state_bytes(std::size_t count, DType dtype, std::span<const int>) const override {
    return residual_bytes(count, dtype) + most_right(options_) * size_of(residual_type(dtype));
  }
  std::size_t kept_numbers(std::size_t count) const override { return count; }

  Task run(Stage& stage, Bucket bucket) const override;

  Status give_back(Arithmetic& math, const Bucket& bucket) const override {
    const DType dtype = bucket.reduction.dtype;
    ROUNDELAY_RETURN_IF_ERROR(math.give_back(bucket.buffer.data(), bucket.state.data(), bucket.count, dtype));
    const std::size_t rest = residual_bytes(bucket.count, dtype);
    return math.clear(bucket.state.data() + rest, bucket.state.size() - rest);
  }

 private:
  static std::size_t residual_bytes(std::size_t count, DType dtype) {
    return aligned(count * size_of(residual_type(dtype)));
  }
  // Returns the matrix's vectors among those of all matrices.
  static Vectors vectors(std::byte* of_all, std::size_t at, std::size_t length, const Matrix& matrix,
                         DType real) {
    return {of_all + at * size_of(real), length, matrix.rank};
  }
  static Vectors left(const Run& run, const Matrix& matrix) {
    return vectors(run.left, matrix.left, matrix.rows, matrix, run.real);
  }
  static Vectors right(const Run& run, const Matrix& matrix) {
    return vectors(run.right, matrix.right, matrix.columns, matrix, run.real);
  }
  // Returns the matrix's right factors of the last run.
  static Vectors last(const Run& run, const Bucket& bucket, const Matrix& matrix) {
    std::byte* const all = bucket.state.data() + residual_bytes(bucket.count, run.dtype);
    return vectors(all, matrix.right, matrix.columns, matrix, run.real);
  }

  Result<Run> begin(Stage& stage, const Bucket& bucket) const;
  Status renew(Arithmetic& math, const Run& run, const Bucket& bucket) const;

  const Options options_;
  const std::string text_;
};

Status PowerSgd::check(const BucketShape& shape) const {
  const std::string self = "technique 'power_sgd'";
  if (!is_floating(shape.dtype))
    return Status::invalid(self + " needs floating gradients, not " + std::string(name_of(shape.dtype)));
  if (options_.columns.size() != shape.parameters.size()) {
    return Status::invalid(self + ": columns has " + std::to_string(options_.columns.size()) +
                           " numbers, but the bucket has " + std::to_string(shape.parameters.size()) +
                           " parameters");
  }
  for (std::size_t i = 0; i < options_.columns.size(); ++i) {
    const std::size_t columns = options_.columns[i], count = shape.parameters[i].count;
    if (columns == 0 || count % columns == 0) continue;
    return Status::invalid(self + ": parameter " + std::to_string(i) + " has " + std::to_string(count) +
                           " elements, which are no rows of " + std::to_string(columns));
  }
  return {};
}

// Returns what the reduction makes of a sum of one.
double scale_of(const collective::Reduction& how) {
  const auto of = [](Scale scale) { return scale.factor / static_cast<double>(scale.divisor); };
  return of(how.prescale) * of(how.scale);
}

Result<Run> PowerSgd::begin(Stage& stage, const Bucket& bucket) const {
  Run run{};
  run.layout = layout_of(options_, shape_of(bucket));
  run.dtype = bucket.reduction.dtype;
  run.real = residual_type(run.dtype);
  run.wire = run.dtype == DType::kFloat32 ? options_.wire.value_or(run.dtype) : run.dtype;

  const Group& all = stage.fabric().group();
  const Group& node = stage.levels().front()->group();
  const bool flat = stage.levels().size() == 1;
  run.shard = flat ? Range{0, bucket.count}
                   : shard_of(bucket.count, static_cast<std::size_t>(node.size()),
                              static_cast<std::size_t>(node.index));
  const double nodes = flat ? all.size() : static_cast<double>(all.size()) / node.size();
  run.weight = flat || run.dtype == run.real ? 1 : node.size();
  const double scale = scale_of(bucket.reduction);
  run.share = scale == 0 ? 0 : 1 / (scale * nodes);

  const std::size_t size = size_of(run.real);
  const Result<std::byte*> factors = stage.scratch((run.layout.left + run.layout.right) * size);
  if (!factors.ok()) return factors.status();
  const std::size_t longest = std::max(run.layout.dense_elements + run.layout.left, run.layout.right);
  const Result<std::byte*> message = stage.scratch(longest * size_of(run.wire));
  if (!message.ok()) return message.status();
  run.left = *factors;
  run.right = *factors + run.layout.left * size;
  run.message = *message;
  return run;
}

// Copies in groups, which a GPU does at once.
class Copies {
 public:
  explicit Copies(Arithmetic& math) : math_(math) {}
  Status add(const kernels::GpuCopy& item) {
    if (count_ == items_.size()) ROUNDELAY_RETURN_IF_ERROR(end());
    items_[count_++] = item;
    return {};
  }
  Status end() { return math_.copy(std::span(items_).first(std::exchange(count_, 0))); }

 private:
  Arithmetic& math_;
  std::array<kernels::GpuCopy, 64> items_{};
  std::size_t count_ = 0;
};

// Copies the dense elements to their places in the message, or back.
Status copy_dense(Arithmetic& math, const Run& run, const Bucket& bucket, bool back) {
  Copies copies(math);
  std::size_t at = 0;
  for (const Slice& slice : run.layout.dense) {
    std::byte* const own = bucket.buffer.data() + slice.first * size_of(run.dtype);
    std::byte* const sent = run.message + at * size_of(run.wire);
    ROUNDELAY_RETURN_IF_ERROR(
        copies.add(back ? kernels::GpuCopy{own, sent, slice.count, run.dtype, run.wire}
                        : kernels::GpuCopy{sent, own, slice.count, run.wire, run.dtype}));
    at += slice.count;
  }
  return copies.end();
}

// Copies `count` factors to the message, behind `before` elements.
Status send(Arithmetic& math, const Run& run, const std::byte* factors, std::size_t count,
            std::size_t before) {
  const kernels::GpuCopy item{run.message + before * size_of(run.wire), factors, count, run.wire, run.real};
  return math.copy({&item, 1});
}

// Copies them back.
Status receive(Arithmetic& math, const Run& run, std::byte* factors, std::size_t count, std::size_t before) {
  const kernels::GpuCopy item{factors, run.message + before * size_of(run.wire), count, run.real, run.wire};
  return math.copy({&item, 1});
}

// Returns the block with the elements, residuals and factors that belong to it. `mine`: it lies in the shard.
kernels::LowRankBlock block_of(const Run& run, const Bucket& bucket, const Matrix& matrix, const Block& block,
                               Vectors left, Vectors right, bool mine) {
  const std::size_t at = matrix.slice.first + block.row * matrix.columns + block.column;
  const std::size_t size = size_of(run.real);
  left.data += block.row * size;
  right.data += block.column * size;
  return {bucket.buffer.data() + at * size_of(run.dtype),
          mine ? bucket.state.data() + at * size : nullptr,
          run.weight,
          block.rows,
          block.columns,
          matrix.columns,
          left,
          right};
}

collective::ReducescatterCall node_sums(const Run& run, const Bucket& bucket, const Stage& stage,
                                        const Group& node) {
  collective::ReducescatterCall call;
  const auto members = static_cast<std::size_t>(node.size());
  const std::size_t size = size_of(run.dtype);
  call.dtype = run.dtype;
  call.scale.divisor = static_cast<std::int64_t>(run.weight);
  call.stream = stage.stream();
  for (std::size_t member = 0; member < members; ++member) {
    const Range shard = shard_of(bucket.count, members, member);
    call.shard_bytes.push_back((shard.last - shard.first) * size);
  }
  call.input = bucket.buffer.data();
  call.output = {bucket.buffer.data() + run.shard.first * size, (run.shard.last - run.shard.first) * size};
  call.region = bucket.buffer.region;
  return call;
}

// Computes the shard's part of the left factors.
Status project(Arithmetic& math, const Run& run, const Bucket& bucket, const Vectors& left,
               const Vectors& right, const Matrix& matrix) {
  Status bad;
  matrix.each_block(run.shard, [&](const Block& block) {
    if (bad.ok()) bad = math.project(block_of(run, bucket, matrix, block, left, right, true), run.dtype);
  });
  return bad;
}

Status project_back(Arithmetic& math, const Run& run, const Bucket& bucket, const Vectors& left,
                    const Vectors& right, const Matrix& matrix) {
  Status bad;
  matrix.each_block(run.shard, [&](const Block& block) {
    if (bad.ok()) bad = math.project_back(block_of(run, bucket, matrix, block, left, right, true), run.dtype);
  });
  return bad;
}

// Writes the result, and what the shard keeps.
Status expand(Arithmetic& math, const Run& run, const Bucket& bucket, const Vectors& left,
              const Vectors& right, const Matrix& matrix) {
  Status bad;
  const auto each = [&](Range range, bool mine) {
    matrix.each_block(range, [&](const Block& block) {
      if (bad.ok())
        bad = math.expand(block_of(run, bucket, matrix, block, left, right, mine), run.share, run.dtype);
    });
  };
  each({0, run.shard.first}, false);
  each(run.shard, true);
  each({run.shard.last, bucket.count}, false);
  return bad;
}

// Makes the right factors of the first run.
Status PowerSgd::renew(Arithmetic& math, const Run& run, const Bucket& bucket) const {
  for (const Matrix& matrix : run.layout.matrices) {
    const Vectors own = last(run, bucket, matrix);
    ROUNDELAY_RETURN_IF_ERROR(math.renew(own, own, options_.seed + matrix.right, run.real));
  }
  return {};
}

Task PowerSgd::run(Stage& stage, Bucket bucket) const {
  Arithmetic& math = stage.math();
  const Result<Run> begun = begin(stage, bucket);
  if (!begun.ok()) co_return begun.status();
  const Run& run = *begun;
  const Layout& layout = run.layout;
  collective::Call call;

  Status bad = copy_dense(math, run, bucket, false);
  if (bad.ok() && bucket.run == 0) bad = renew(math, run, bucket);
  if (!bad.ok()) co_return bad;
  if (stage.levels().size() > 1) {
    Fabric& node = *stage.levels().front();
    call = node_sums(run, bucket, stage, node.group());
    co_await Calling(node, call, "node sums");
  }
  stage.span("projection");
  bad = math.clear(run.left, (layout.left + layout.right) * size_of(run.real));
  for (const Matrix& matrix : layout.matrices)
    if (bad.ok()) bad = project(math, run, bucket, left(run, matrix), last(run, bucket, matrix), matrix);
  if (bad.ok()) bad = send(math, run, run.left, layout.left, layout.dense_elements);
  if (!bad.ok()) co_return bad;

  const std::size_t first = (layout.dense_elements + layout.left) * size_of(run.wire);
  AllreduceCall& lefts = call.emplace<AllreduceCall>(allreduce_of({run.message, 0, first}, bucket, stage));
  lefts.dtype = run.wire;
  co_await Calling(stage.fabric(), call, "left factors");

  stage.span("orthonormal factors");
  bad = copy_dense(math, run, bucket, true);
  if (bad.ok()) bad = receive(math, run, run.left, layout.left, layout.dense_elements);
  for (const Matrix& matrix : layout.matrices) {
    if (bad.ok()) bad = math.orthonormalise(left(run, matrix), run.real);
    if (bad.ok()) bad = project_back(math, run, bucket, left(run, matrix), right(run, matrix), matrix);
  }
  if (bad.ok()) bad = send(math, run, run.right, layout.right, 0);
  if (!bad.ok()) co_return bad;

  const std::size_t second = layout.right * size_of(run.wire);
  AllreduceCall& rights = call.emplace<AllreduceCall>(allreduce_of({run.message, 0, second}, bucket, stage));
  rights.dtype = run.wire;
  co_await Calling(stage.fabric(), call, "right factors");

  stage.span("expansion");
  bad = receive(math, run, run.right, layout.right, 0);
  for (const Matrix& matrix : layout.matrices) {
    if (bad.ok()) bad = expand(math, run, bucket, left(run, matrix), right(run, matrix), matrix);
    const std::uint64_t seed = options_.seed + matrix.right + (bucket.run + 1) * layout.right;
    if (bad.ok()) bad = math.renew(last(run, bucket, matrix), right(run, matrix), seed, run.real);
  }
  co_return bad;
}

constexpr std::string_view kWires[] = {"none", "fp16", "bf16"};

constexpr Parameter kParameters[] = {
    {"columns", "the number of columns of each parameter's matrix; 0: the parameter goes densely", Numbers{}},
    {"rank", "the rank of approximations, at most", Whole{1, 1 << 16, 2}},
    {"seed", "the seed of the first factors", Whole{0, std::int64_t{1} << 62, 0}},
    {"wire", "the type in which fp32 elements travel", Choice{kWires}}};

TechniquePtr make(std::span<const Value> values, const std::string& text) {
  Options options;
  options.columns = std::get<std::vector<std::uint32_t>>(values[0]);
  options.rank = static_cast<std::size_t>(std::get<std::int64_t>(values[1]));
  options.seed = static_cast<std::uint64_t>(std::get<std::int64_t>(values[2]));
  const std::string_view wire = std::get<std::string_view>(values[3]);
  if (wire == "fp16") options.wire = DType::kFloat16;
  if (wire == "bf16") options.wire = DType::kBFloat16;
  return std::make_shared<const PowerSgd>(std::move(options), text);
}

}  // namespace

extern const TechniqueKind kTechnique = {
    "power_sgd",
    "Sends low-rank factors of the gradients' matrices and keeps what they lack for later steps.",
    kParameters, &make};

}  // namespace roundelay::compress::power_sgd
