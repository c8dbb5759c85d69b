// Coarse-grained sparse communication of GradientFlow (arXiv 1902.06855): of a bucket's chunks, each step
// sends the few with the largest norms, in one dense allreduce, and keeps the others back for later steps.
//
// Rank r has a residual e_r, which is zero at first. With the gradients g_r:
//   u_r = e_r + g_r                                            or, with local momentum, kernels::accumulate()
//   norm[c] = sum over r of sum |u_r| in chunk c                an allreduce of one number for each chunk
//   C = the K chunks with the largest norms, ties by index      the same on all ranks
//   s_r = u_r, rounded to the wire type, in C
//   result = scale(sum over r of prescale(s_r)) in C, and 0 elsewhere
//   e_r = u_r - s_r in C, and u_r elsewhere; momentum becomes 0 in C, unless masking is 0
// quota.h has K. If K is all chunks, the bucket goes densely where it lies, without norms. With the norms of
// the last run, C is known before the gradients are, and the norms of this run travel with the chunks: one
// call instead of two. They are scaled then as the chunks are, which changes no order.
//
// Parameters that always go densely travel in the same allreduce, before the chunks. Their elements of the
// residual are zero always.
//
// An element that is not finite is not kept. The norm of its chunk is not finite either, and then the result
// of all ranks contains a NaN, in whatever chunk it was: so loss scaling sees the overflow. The next run is
// clean. Therefore the ranks agree on the norms of every run with a message, also if nothing is chosen by
// them (K = 0). Gradients that go where they lie show an overflow themselves.
//
// The state: the residual, the momentum if there is any, the norms, and the indices of the chunks that were
// sent.
#include <algorithm>
#include <utility>

#include "compress/copies.h"
#include "compress/csc/plan.h"
#include "compress/quota.h"
#include "compress/registry.h"

namespace roundelay::compress::csc {
namespace {

using collective::AllreduceCall;
using collective::Calling;
using collective::Task;
using kernels::residual_type;

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// The state's parts begin at these offsets, in bytes. The state ends at the last one.
struct Places {
  std::size_t momentum, norms, indices, end;
};

BucketShape shape_of(const Bucket& bucket) {
  return {bucket.count, bucket.reduction.dtype, bucket.parameters};
}

class Csc final : public Technique {
 public:
  Csc(Options options, std::string text) : options_(std::move(options)), text_(std::move(text)) {}

  std::string text() const override { return text_; }
  Status check(const BucketShape& shape) const override {
    if (!is_floating(shape.dtype))
      return Status::invalid("technique 'csc' needs floating gradients, not " +
                             std::string(name_of(shape.dtype)));
    if (options_.dense.empty() || options_.dense.back() < shape.parameters.size()) return {};
    return Status::invalid("technique '" + text_ + "': the bucket has " +
                           std::to_string(shape.parameters.size()) + " parameters, and no parameter " +
                           std::to_string(options_.dense.back()));
  }
  std::size_t state_bytes(std::size_t count, DType dtype, std::span<const int>) const override {
    return places(count, dtype).end;
  }
  std::size_t kept_numbers(std::size_t count, std::span<const int>) const override {
    return has_momentum() ? 2 * count : count;
  }
  std::optional<SentChunks> sent(const BucketShape& shape, std::uint64_t run) const override {
    return SentChunks{chunking_of(options_, shape.count).chunk, chosen_in(options_, shape, run),
                      places(shape.count, shape.dtype).indices, options_.dense};
  }

  Task run(Workspace& workspace, Bucket bucket) const override {
    const RunPlan plan = plan_of(options_, shape_of(bucket), bucket.run);
    return plan.in_place ? run_in_place(workspace, bucket) : run_by_message(workspace, bucket, plan);
  }

  Residual residual(std::size_t count, const Scale&, const Place&) const override { return {{0, count}}; }

 private:
  [[nodiscard]] bool has_momentum() const { return options_.momentum.factor != 0; }
  [[nodiscard]] Places places(std::size_t count, DType dtype) const {
    const std::size_t residual = count * size_of(residual_type(dtype));
    const std::size_t each = aligned(chunking_of(options_, count).chunks() * sizeof(float));
    const std::size_t norms = aligned(has_momentum() ? 2 * residual : residual);
    return {residual, norms, norms + each, norms + 2 * each};
  }
  [[nodiscard]] ChunkMap map_in(const Bucket& bucket) const { return map_of(options_, shape_of(bucket)); }
  [[nodiscard]] kernels::ResidualState kept_in(const Bucket& bucket) const;
  [[nodiscard]] std::span<float> norms_in(const Bucket& bucket) const;
  [[nodiscard]] std::span<std::uint32_t> indices_in(const Bucket& bucket, std::size_t chosen) const;

  Status begin(Workspace& workspace, const Bucket& bucket, const RunPlan& plan, std::byte* message) const;
  Status fill(Workspace& workspace, const Bucket& bucket, const RunPlan& plan, std::byte* message) const;
  Status scatter(Workspace& workspace, const Bucket& bucket, const RunPlan& plan,
                 const std::byte* message) const;
  Task run_in_place(Workspace& workspace, Bucket bucket) const;
  Task run_by_message(Workspace& workspace, Bucket bucket, RunPlan plan) const;

  const Options options_;
  const std::string text_;
};

kernels::ResidualState Csc::kept_in(const Bucket& bucket) const {
  std::byte* const residual = bucket.state.data();
  std::byte* const momentum = residual + places(bucket.count, bucket.reduction.dtype).momentum;
  return {residual, has_momentum() ? momentum : nullptr, options_.momentum};
}

std::span<float> Csc::norms_in(const Bucket& bucket) const {
  std::byte* const at = bucket.state.data() + places(bucket.count, bucket.reduction.dtype).norms;
  return {reinterpret_cast<float*>(at), chunking_of(options_, bucket.count).chunks()};
}

std::span<std::uint32_t> Csc::indices_in(const Bucket& bucket, std::size_t chosen) const {
  std::byte* const at = bucket.state.data() + places(bucket.count, bucket.reduction.dtype).indices;
  return {reinterpret_cast<std::uint32_t*>(at), chosen};
}

std::byte* bytes_of(std::span<float> norms) { return reinterpret_cast<std::byte*>(norms.data()); }

AllreduceCall sum_of(std::span<float> norms, const Workspace& workspace) {
  AllreduceCall call;
  call.dtype = DType::kFloat32;
  call.buffer = {bytes_of(norms), 0, norms.size_bytes()};
  call.stream = workspace.stream();
  return call;
}

// Calls `make` with each slice that goes densely and its place in the message, in elements, and carries out
// the copies that it returns.
template <typename Make>
Status copy_dense(Arithmetic& math, const ChunkMap& map, Make make) {
  Copies copies(math);
  Status bad;
  std::size_t at = 0;
  map.each_dense([&](const Slice& slice) {
    if (bad.ok()) bad = copies.add(make(slice, at));
    at += slice.count;
  });
  return bad.ok() ? copies.end() : bad;
}

// Takes the dense elements into the message, and the others into the residual, whose norms it computes.
Status Csc::begin(Workspace& workspace, const Bucket& bucket, const RunPlan& plan, std::byte* message) const {
  Arithmetic& math = workspace.math();
  const ChunkMap map = map_in(bucket);
  std::byte* const values = bucket.buffer.data();
  const kernels::ResidualState kept = kept_in(bucket);
  const std::size_t size = size_of(plan.dtype), kept_size = size_of(residual_type(plan.dtype));
  if (plan.chunks_at > plan.dense_at) {
    workspace.span("dense elements");
    ROUNDELAY_RETURN_IF_ERROR(copy_dense(math, map, [&](const Slice& slice, std::size_t at) {
      return kernels::GpuCopy{message + (plan.dense_at + at) * size_of(plan.wire_type),
                              values + slice.first * size, slice.count, plan.wire_type, plan.dtype};
    }));
    ROUNDELAY_RETURN_IF_ERROR(copy_dense(math, map, [&](const Slice& slice, std::size_t) {
      return kernels::GpuCopy{values + slice.first * size, kept.residual + slice.first * kept_size,
                              slice.count, plan.dtype, residual_type(plan.dtype)};  // zeros
    }));
  }
  workspace.span("norms");
  const std::span<float> norms = norms_in(bucket);
  ROUNDELAY_RETURN_IF_ERROR(math.accumulate(norms, kept, values, plan.chunking, plan.dtype));
  // A chunk that is dense as a whole is not to be chosen: all others have a larger norm than zero.
  std::size_t end = 0;
  Status bad;
  const auto clear_until = [&](std::size_t next) {
    if (bad.ok() && next > end) bad = math.clear(bytes_of(norms.subspan(end)), (next - end) * sizeof(float));
  };
  map.each_row([&](std::size_t first, std::size_t chunks) {
    clear_until(first);
    end = first + chunks;
  });
  clear_until(norms.size());
  if (!bad.ok() || plan.agreement != Agreement::kWith) return bad;
  const kernels::GpuCopy along{message, bytes_of(norms), norms.size(), DType::kFloat32, DType::kFloat32};
  return math.copy({&along, 1});
}

Status Csc::fill(Workspace& workspace, const Bucket& bucket, const RunPlan& plan, std::byte* message) const {
  if (plan.chosen == 0) return {};
  workspace.span("gather");
  const std::span<const std::uint32_t> indices = indices_in(bucket, plan.chosen);
  const kernels::ResidualState kept = kept_in(bucket);
  ROUNDELAY_RETURN_IF_ERROR(workspace.math().gather(message + plan.chunks_at * size_of(plan.wire_type),
                                                    kept.residual, plan.chunking, indices, plan.wire_type));
  if (kept.momentum == nullptr || !options_.masking) return {};
  return workspace.math().clear_chunks(kept.momentum, plan.chunking, indices, residual_type(plan.dtype));
}

// Brings the sums to their places.
Status Csc::scatter(Workspace& workspace, const Bucket& bucket, const RunPlan& plan,
                    const std::byte* message) const {
  workspace.span("scatter");
  std::byte* const values = bucket.buffer.data();
  ROUNDELAY_RETURN_IF_ERROR(
      workspace.math().scatter(values, plan.dtype, message + plan.chunks_at * size_of(plan.wire_type),
                               plan.wire_type, plan.chunking, indices_in(bucket, plan.chosen)));
  if (plan.agreement == Agreement::kWith) {
    const std::span<float> norms = norms_in(bucket);
    const kernels::GpuCopy back{bytes_of(norms), message, norms.size(), DType::kFloat32, DType::kFloat32};
    ROUNDELAY_RETURN_IF_ERROR(workspace.math().copy({&back, 1}));
  }
  if (plan.chunks_at == plan.dense_at) return {};
  return copy_dense(workspace.math(), map_in(bucket), [&](const Slice& slice, std::size_t at) {
    return kernels::GpuCopy{values + slice.first * size_of(plan.dtype),
                            message + (plan.dense_at + at) * size_of(plan.wire_type), slice.count, plan.dtype,
                            plan.wire_type};
  });
}

Task Csc::run_by_message(Workspace& workspace, Bucket bucket, RunPlan plan) const {
  Arithmetic& math = workspace.math();
  const std::span<float> norms = norms_in(bucket);
  const std::span<std::uint32_t> indices = indices_in(bucket, plan.chosen);
  const Result<std::byte*> memory = workspace.scratch(plan.room * size_of(plan.wire_type));
  if (!memory.ok()) co_return memory.status();
  std::byte* const message = *memory;

  Status bad;
  if (plan.by_last) bad = math.select(indices, norms);
  if (bad.ok()) bad = begin(workspace, bucket, plan, message);
  if (!bad.ok()) co_return bad;
  collective::Call call;
  if (plan.agreement == Agreement::kBefore) {
    call = sum_of(norms, workspace);
    co_await Calling(workspace.fabric(), call, "norms");
    workspace.span("selection");
    bad = math.select(indices, norms);
  }
  if (bad.ok()) bad = fill(workspace, bucket, plan, message);
  if (!bad.ok()) co_return bad;
  if (plan.sent > 0) {
    AllreduceCall& sum = call.emplace<AllreduceCall>(
        allreduce_of({message, 0, plan.sent * size_of(plan.wire_type)}, bucket, workspace));
    sum.dtype = plan.wire_type;
    co_await Calling(workspace.fabric(), call, "allreduce");
    bad = scatter(workspace, bucket, plan, message);
    if (!bad.ok()) co_return bad;
  }
  if (plan.agreement == Agreement::kAfter) {
    call = sum_of(norms, workspace);
    co_await Calling(workspace.fabric(), call, "norms");
  }
  std::byte* const seen = bucket.buffer.data() + plan.first * size_of(plan.dtype);
  co_return math.mark_overflow(seen, plan.dtype, norms);
}

Task Csc::run_in_place(Workspace& workspace, Bucket bucket) const {
  Arithmetic& math = workspace.math();
  Status bad;
  std::size_t at = 0;
  map_in(bucket).each_row([&](std::size_t first, std::size_t chunks) {
    const std::span<std::uint32_t> row = indices_in(bucket, at + chunks).subspan(at);
    if (bad.ok()) bad = math.number(row, {static_cast<std::uint32_t>(first), 1});
    at += chunks;
  });
  if (bad.ok())
    bad = math.give_back(bucket.buffer.data(), bucket.state.data(), bucket.count, bucket.reduction.dtype);
  if (!bad.ok()) co_return bad;
  collective::Call call = allreduce_of(bucket.buffer, bucket, workspace);
  co_await Calling(workspace.fabric(), call, "allreduce");
  co_return Status{};
}

constexpr std::string_view kNorms[] = {"same", "previous"};
constexpr std::string_view kWires[] = {"none", "fp16", "bf16"};
constexpr std::int64_t kMostChunks = std::int64_t{1} << 31;

constexpr Parameter kParameters[] = {
    {"before", "the number of chunks in the buckets before this one", Whole{0, kMostChunks, 0}},
    {"chunk", "the number of elements in a chunk", Whole{1, kMostChunks, 32768}},
    {"dense", "the parameters of the bucket that always go densely", Indices{}},
    {"keep", "the part of the chunks that a step sends", Real{0, 1, 0.1, true, false}},
    {"masking", "whether the momentum is cleared where it was sent (1) or goes on (0)", Whole{0, 1, 1}, true},
    {"momentum", "the factor of the momentum that each rank applies to its own gradients; 0: none",
     Real{0, 1, 0, false, true}},
    {"nesterov", "whether that momentum is Nesterov's (1) or not (0)", Whole{0, 1, 0}},
    {"norms", "the step whose norms choose the chunks: the same one or the previous one", Word{kNorms}},
    {"wire", "the type in which fp32 elements travel", Word{kWires}}};

TechniquePtr make(std::span<const Value> values, const std::string& text) {
  const auto whole = [&](std::size_t i) { return std::get<std::int64_t>(values[i]); };
  Options options;
  options.before = static_cast<std::uint64_t>(whole(0));
  options.chunk = static_cast<std::size_t>(whole(1));
  options.dense = std::get<std::vector<std::uint32_t>>(values[2]);
  options.share = share_of(std::get<double>(values[3]));
  options.masking = whole(4) == 1;
  options.momentum = {std::get<double>(values[5]), whole(6) == 1};
  options.by_last_norms = std::get<std::string_view>(values[7]) == "previous";
  const std::string_view wire_type = std::get<std::string_view>(values[8]);
  if (wire_type == "fp16") options.wire_type = DType::kFloat16;
  if (wire_type == "bf16") options.wire_type = DType::kBFloat16;
  return std::make_shared<const Csc>(std::move(options), text);
}

}  // namespace

extern const TechniqueKind kTechnique = {
    "csc",
    "Sends the chunks with the largest norms and keeps the others for later steps (GradientFlow's CSC).",
    kParameters, &make};

}  // namespace roundelay::compress::csc
