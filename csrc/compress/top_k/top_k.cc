// HiTopKComm (Shi et al., arXiv 2010.10458): nodes exchange the few elements with the largest magnitudes, and
// keep the others for later steps. Inside a node all is dense.
//
// Each rank of a node has a shard of the bucket, and the residual e of this shard; the ranks of one place on
// all nodes have the same shard. With the gradients g of the node's ranks:
//   y = the sum of g over the node                       a reduce-scatter in the node
//   u = e + y                                            or, with local momentum, kernels::accumulate()
//   I = k indices of large |u| (kernels/top_k.h)         each node has others
//   s = u at I, rounded to the wire type
//   z = scale(sum over the nodes of prescale(s at I))    a gather between the nodes; added in their order
//   result = the shards of z                             an all-gather in the node
//   e = u - s at I, and u elsewhere                      the momentum becomes 0 at I, unless masking is 0
// On one node the gather is left out. If there is no fabric within nodes (one rank on each, or nodes whose
// ranks share no memory), each rank counts as a node, and its shard is the whole bucket. Nodes with different
// numbers of ranks have as many shards as the smallest one has ranks; further ranks send nothing.
//
// quota.h has k: over all shards and buckets of a pool a run sends `density` of the elements, within one.
// With density 1 the bucket goes densely where it lies, unless there is momentum or another wire type.
//
// If a node's sum is divided (an average), so is what the residual keeps: it has the units of the mean over
// the node. Parameters that always go densely travel in the same message, as values without indices. An
// element that is not finite is not kept; a mark in the message then makes all ranks get a NaN.
//
// The state: the residual of the shard, and the momentum if there is any.
#include <utility>

#include "compress/give_back.h"
#include "compress/quota.h"
#include "compress/registry.h"
#include "compress/top_k/plan.h"
#include "compress/top_k/shard.h"

namespace roundelay::compress::top_k {
namespace {

using collective::Call;
using collective::Calling;
using collective::Fabric;
using collective::Task;
using kernels::residual_type;

// The messages of all nodes, side by side, in the order of the nodes. A gather over each level in turn fills
// them, from the inside out: each member begins with what it has, and has its whole group's part then.
class Messages {
 public:
  // `memory` has room for a message of each node.
  Messages(std::span<Fabric* const> levels, std::byte* memory, std::size_t bytes)
      : memory_(memory), part_(bytes) {
    for (const Fabric* level : levels) {
      at_ += static_cast<std::size_t>(level->group().index) * count_;
      count_ *= static_cast<std::size_t>(level->group().size());
    }
    at_ *= bytes;
  }
  static std::size_t count_over(std::span<Fabric* const> levels) {
    return Messages(levels, nullptr, 0).count_;
  }
  [[nodiscard]] std::byte* own() const { return memory_ + at_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::byte* all() const { return memory_; }
  // Returns the gather over the next level.
  collective::AllgatherCall gather(const Group& group, GpuStream stream) {
    collective::AllgatherCall call;
    call.stream = stream;
    call.receive_bytes.assign(static_cast<std::size_t>(group.size()), part_);
    call.input = memory_ + at_;
    at_ -= static_cast<std::size_t>(group.index) * part_;
    part_ *= call.receive_bytes.size();
    call.output = {memory_ + at_, part_};
    return call;
  }

 private:
  std::byte* const memory_;
  std::size_t part_;  // bytes that this member has, at the offset `at_`
  std::size_t at_ = 0, count_ = 1;
};

class TopK final : public Technique {
 public:
  TopK(Options options, std::string text) : options_(std::move(options)), text_(std::move(text)) {}

  std::string text() const override { return text_; }
  Status check(const BucketShape& shape) const override;
  std::size_t state_bytes(std::size_t count, DType dtype, std::span<const int> levels) const override {
    return kept_numbers(count, levels) * size_of(residual_type(dtype));
  }
  std::size_t kept_numbers(std::size_t count, std::span<const int> levels) const override {
    const std::size_t residual = shard_capacity(count, levels.empty() ? 1 : levels.front());
    return options_.momentum.factor != 0 ? 2 * residual : residual;
  }
  Task run(Workspace& workspace, Bucket bucket) const override {
    RunPlan plan = plan_of(options_, {bucket.count, bucket.reduction.dtype, bucket.parameters},
                           place_in(workspace), bucket.run);
    return plan.in_place ? reduce_densely(*this, workspace, bucket)
                         : run_by_message(workspace, bucket, std::move(plan));
  }
  Residual residual(std::size_t count, const Scale& scale, const Place& place) const override {
    // What the ranks of a node keep back has been divided, as their sum.
    return {shard_of(count, place), static_cast<double>(scales_of(scale, place).inside.divisor)};
  }

 private:
  Task run_by_message(Workspace& workspace, Bucket bucket, RunPlan plan) const;

  const Options options_;
  const std::string text_;
};

Status TopK::check(const BucketShape& shape) const {
  if (!is_floating(shape.dtype))
    return Status::invalid("technique 'topk' needs floating gradients, not " +
                           std::string(name_of(shape.dtype)));
  if (shape.count >> 32 != 0)
    return Status::invalid("technique 'topk' has 32 bits for an index, and the bucket has " +
                           std::to_string(shape.count) + " elements");
  if (options_.dense.empty() || options_.dense.back() < shape.parameters.size()) return {};
  return Status::invalid("technique '" + text_ + "': the bucket has " +
                         std::to_string(shape.parameters.size()) + " parameters, and no parameter " +
                         std::to_string(options_.dense.back()));
}

Task TopK::run_by_message(Workspace& workspace, Bucket bucket, RunPlan plan) const {
  Fabric* const node = workspace.node();
  const Place place = place_in(workspace);
  const LevelScales scales = scales_of(bucket.reduction.scale, place);
  Call call;
  if (node != nullptr) {
    call = scatter_in_node(bucket, workspace, place, scales.inside);
    co_await Calling(*node, call, "reduce-scatter");
  }
  if (plan.sends()) {  // alike in all nodes
    const std::span<Fabric* const> levels = workspace.across();
    const Result<std::byte*> memory = workspace.scratch(Messages::count_over(levels) * plan.message.bytes());
    if (!memory.ok()) co_return memory.status();
    Messages messages(levels, *memory, plan.message.bytes());
    const Shard shard(options_, plan, workspace, bucket);
    Status bad = shard.fill(messages.own());
    if (!bad.ok()) co_return bad;
    for (Fabric* level : levels) {
      call = messages.gather(level->group(), workspace.stream());
      co_await Calling(*level, call, "gather of pairs");
    }
    bad = shard.sum(messages.all(), messages.count(), scales.between);
    if (!bad.ok()) co_return bad;
  }
  if (node != nullptr) {
    call = gather_in_node(bucket, workspace, place);
    co_await Calling(*node, call, "all-gather");
  }
  co_return Status{};
}

constexpr std::string_view kSelects[] = {"mstopk", "radix", "auto"};
constexpr std::string_view kWires[] = {"none", "fp16", "bf16"};
constexpr std::string_view kIndexBits[] = {"32", "16"};
constexpr std::int64_t kMost = std::int64_t{1} << 62;

constexpr Parameter kParameters[] = {
    {"before", "the number of elements in the buckets before this one", Whole{0, kMost, 0}},
    {"dense", "the parameters of the bucket that always go densely", Indices{}},
    {"density", "the part of the elements that a step sends", Real{0, 1, 0.01, true, false}},
    {"index_bits", "the bits of an index on the wire", Word{kIndexBits}},
    {"masking", "whether the momentum is cleared where it was sent (1) or goes on (0)", Whole{0, 1, 1}, true},
    {"momentum", "the factor of the momentum that is applied to the sums of a node; 0: none",
     Real{0, 1, 0, false, true}},
    {"nesterov", "whether that momentum is Nesterov's (1) or not (0)", Whole{0, 1, 0}},
    {"samplings", "the steps of MSTopK's bisection", Whole{1, 1 << 30, 20}},
    {"seed", "the start of MSTopK's random run", Whole{0, kMost, 0}},
    {"select", "how elements are chosen", Word{kSelects}},
    {"wire", "the type in which fp32 elements travel", Word{kWires}}};

TechniquePtr make(std::span<const Value> values, const std::string& text) {
  const auto whole = [&](std::size_t i) { return std::get<std::int64_t>(values[i]); };
  const auto word = [&](std::size_t i) { return std::get<std::string_view>(values[i]); };
  Options options;
  options.before = static_cast<std::uint64_t>(whole(0));
  options.dense = std::get<std::vector<std::uint32_t>>(values[1]);
  options.share = share_of(std::get<double>(values[2]));
  options.short_indices = word(3) == "16";
  options.masking = whole(4) == 1;
  options.momentum = {std::get<double>(values[5]), whole(6) == 1};
  options.rule.samplings = static_cast<int>(whole(7));
  options.rule.seed = static_cast<std::uint64_t>(whole(8));
  options.rule.how = word(9) == "mstopk" ? kernels::Selection::kMsTopK : kernels::Selection::kRadix;
  if (word(10) == "fp16") options.wire_type = DType::kFloat16;
  if (word(10) == "bf16") options.wire_type = DType::kBFloat16;
  return std::make_shared<const TopK>(std::move(options), text);
}

}  // namespace

extern const TechniqueKind kTechnique = {
    "topk",
    "Nodes exchange the elements of largest magnitude and keep the others for later steps (HiTopKComm).",
    kParameters, &make};

}  // namespace roundelay::compress::top_k
