// Gradients in 8 bits between nodes. Inside a node all is dense, in the gradients' own type.
//
// Each rank of a node has a shard of the bucket, and the residual e of this shard; the N ranks of one place
// on all nodes have the same shard. With the gradients g of the node's ranks, and Q(x) for x in 8 bits
// (kernels/quantise.h):
//   y = the sum of g over the node                     a reduce-scatter in the node
//   u = e + y
//   s_j = the sum over the nodes of Q(u) on part j     an all-to-all: rank j of the N gets its part of each
//   z = scale(Q(s_j)) of all parts                     a gather between the nodes
//   result = the shards of z                           an all-gather in the node
//   e = u - Q(u), and on the own part s_j - Q(s_j)     nothing is lost: what is not sent now is sent later
// A rank does not round its own part of the sum s_j. All ranks take Q(s_j), its owner too, so that the bits
// are equal. Over several levels between nodes, the all-to-alls go from the inside out, each on the part that
// the last one left, and the gathers back. On N nodes a rank sends 2 (N - 1) / N of its shard, in 65/256 of
// the bytes of fp32.
//
// A block that has a number that is not finite, on any node, becomes NaN on all ranks, and none keeps any of
// it. If a node's sum is divided (an average), so is what the residual keeps, as with topk; and as there,
// nodes with different numbers of ranks have as many shards as the smallest one has ranks. On one node the
// bucket goes densely. The technique works in host memory alone.
//
// The state: the residual of the shard.
#include <string>
#include <utility>

#include "compress/give_back.h"
#include "compress/quantised/run.h"
#include "compress/registry.h"

namespace roundelay::compress::quantised {
namespace {

using collective::Call;
using collective::Calling;
using collective::Fabric;
using collective::Task;

class Quantised final : public Technique {
 public:
  explicit Quantised(std::string text) : text_(std::move(text)) {}

  std::string text() const override { return text_; }
  Status check(const BucketShape& shape) const override {
    if (is_floating(shape.dtype) && shape.dtype != DType::kFloat64) return {};
    return Status::invalid("technique 'quantised' needs gradients of fp32 or a half type, not " +
                           std::string(name_of(shape.dtype)));
  }
  std::size_t state_bytes(std::size_t count, DType, std::span<const int> levels) const override {
    return kept_numbers(count, levels) * sizeof(float);
  }
  std::size_t kept_numbers(std::size_t count, std::span<const int> levels) const override {
    return shard_capacity(count, levels.empty() ? 1 : levels.front());
  }
  Task run(Workspace& workspace, Bucket bucket) const override {
    return workspace.across().empty() ? reduce_densely(*this, workspace, bucket)
                                      : run_between(workspace, bucket);
  }
  Residual residual(std::size_t count, const Scale& scale, const Place& place) const override {
    // What the ranks of a node keep back has been divided, as their sum.
    return {shard_of(count, place), static_cast<double>(scales_of(scale, place).inside.divisor)};
  }

 private:
  Task run_between(Workspace& workspace, Bucket bucket) const;

  const std::string text_;
};

Task Quantised::run_between(Workspace& workspace, Bucket bucket) const {
  if (workspace.stream() != nullptr)
    co_return Status::invalid("technique 'quantised' works in host memory, and these gradients are on a GPU");
  Fabric* const node = workspace.node();
  const Place place = place_in(workspace);
  Call call;
  if (node != nullptr) {
    call = scatter_in_node(bucket, workspace, place, scales_of(bucket.reduction.scale, place).inside);
    co_await Calling(*node, call, "reduce-scatter");
  }
  Run run(workspace, bucket);
  if (run.sends()) {  // alike in all nodes
    const std::span<Fabric* const> levels = workspace.across();
    Status bad = run.begin();
    if (!bad.ok()) co_return bad;
    for (std::size_t level = 0; level < levels.size(); ++level) {
      Result<collective::AlltoallCall> exchange = run.send(level);
      if (!exchange.ok()) co_return exchange.status();
      call = *std::move(exchange);
      co_await Calling(*levels[level], call, "exchange");
      bad = run.add(level);
      if (!bad.ok()) co_return bad;
    }
    bad = run.finish();
    if (!bad.ok()) co_return bad;
    for (std::size_t level = levels.size(); level-- > 0;) {
      call = run.gather(level);
      co_await Calling(*levels[level], call, "gather of sums");
    }
    bad = run.take();
    if (!bad.ok()) co_return bad;
  }
  if (node != nullptr) {
    call = gather_in_node(bucket, workspace, place);
    co_await Calling(*node, call, "all-gather");
  }
  co_return Status{};
}

constexpr std::string_view kBits[] = {"8"};

constexpr Parameter kParameters[] = {{"bits", "the bits of a number between nodes", Word{kBits}}};

TechniquePtr make(std::span<const Value>, const std::string& text) {
  return std::make_shared<const Quantised>(text);
}

}  // namespace

extern const TechniqueKind kTechnique = {
    "quantised", "Sums travel between nodes in 8 bits; what the rounding takes is kept for later steps.",
    kParameters, &make};

}  // namespace roundelay::compress::quantised
