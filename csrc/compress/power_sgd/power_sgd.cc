// PowerSGD (Vogels et al., arXiv 1905.13727, algorithms 1 and 2) on node sums: of each matrix of gradients,
// low-rank factors travel, and each step begins with the factors of the step before.
//
// A node adds up its gradients first, and each of its ranks takes a shard of the sums, as a reduce-scatter
// leaves them. If no fabric is within nodes, each rank is a node of its own. Shard s has a residual e_s,
// which is zero at first. With g_s for the sums, N nodes, and Q for the right factors:
//   u_s = e_s + g_s
//   P = scale(sum over s of prescale(u_s Q))        an allreduce, with the parameters that go densely
//   P = orthonormal(P)                              Gram-Schmidt
//   Q = scale(sum over s of prescale(u_s^T P))      an allreduce
//   result = P Q^T
//   e_s = u_s - P Q^T / (N c)                       c: what scale and prescale make of 1; 1/N: of nodes with
//                                                   different numbers of ranks, the node's part of all ranks
// u_s Q needs nothing but the shard's elements, which need not be whole rows. Let u be the sum over all
// shards. P is orthonormal, so P Q^T is the part of c u that lies in P's space. Hence the residuals together
// are u without that part: the sums of results and residuals are those of the gradients, within rounding.
//
// P's scale does not matter, since it becomes orthonormal, so both messages are reduced as the gradients
// would be. If the wire type or the bucket's is a half type, messages are rounded, and the residual keeps
// what the rounding takes from P Q^T. Matrices of half buckets are added up in the node as averages, so that
// they do not overflow.
//
// Q is scaled to columns of length 1 before the next step, and a column that is zero is drawn anew: a matrix
// that was zero for a step, or has a smaller rank, does not lose columns for ever.
//
// If an element is not finite, all elements of P's row are not, and so P, Q and the matrix's result on all
// ranks: loss scaling sees the overflow. The residual and the factors then stay as they were.
//
// The state: the shard's residual, and Q.
#include <string>
#include <utility>

#include "compress/power_sgd/run.h"
#include "compress/registry.h"

namespace roundelay::compress::power_sgd {
namespace {

using collective::Calling;
using collective::Fabric;
using collective::Task;
using kernels::residual_type;

class PowerSgd final : public Technique {
 public:
  PowerSgd(Options options, std::string text) : options_(std::move(options)), text_(std::move(text)) {}

  std::string text() const override { return text_; }
  Status check(const BucketShape& shape) const override;
  std::size_t state_bytes(std::size_t count, DType dtype, std::span<const int> levels) const override {
    return (kept_numbers(count, levels) + most_right(options_)) * size_of(residual_type(dtype));
  }
  std::size_t kept_numbers(std::size_t count, std::span<const int> levels) const override {
    return shard_capacity(count, levels.empty() ? 1 : levels.front());
  }
  Task run(Workspace& workspace, Bucket bucket) const override;
  Residual residual(std::size_t count, const Scale&, const Place& place) const override {
    return {shard_of(count, place)};
  }

 private:
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

Task PowerSgd::run(Workspace& workspace, Bucket bucket) const {
  const Result<Run> made = Run::make(options_, workspace, bucket);
  if (!made.ok()) co_return made.status();
  const Run& run = *made;
  collective::Call call;

  Status bad = run.begin();
  if (!bad.ok()) co_return bad;
  if (Fabric* const node = workspace.node(); node != nullptr) {
    call = run.node_sums(workspace);
    co_await Calling(*node, call, "node sums");
  }
  workspace.span("projection");
  bad = run.project();
  if (!bad.ok()) co_return bad;
  call = run.sum_of_left(workspace);
  co_await Calling(workspace.fabric(), call, "left factors");
  workspace.span("projection back");
  bad = run.project_back();
  if (!bad.ok() || !run.has_matrices()) co_return bad;
  call = run.sum_of_right(workspace);
  co_await Calling(workspace.fabric(), call, "right factors");
  workspace.span("expansion");
  co_return run.finish();
}

constexpr std::string_view kWires[] = {"none", "fp16", "bf16"};

constexpr Parameter kParameters[] = {
    {"columns", "the number of columns of each parameter's matrix; 0: the parameter goes densely", Numbers{}},
    {"rank", "the rank of approximations, at most", Whole{1, 1 << 16, 2}},
    {"seed", "the seed of the first factors", Whole{0, std::int64_t{1} << 62, 0}},
    {"wire", "the type in which fp32 elements travel", Word{kWires}}};

TechniquePtr make(std::span<const Value> values, const std::string& text) {
  Options options;
  options.columns = std::get<std::vector<std::uint32_t>>(values[0]);
  options.rank = static_cast<std::size_t>(std::get<std::int64_t>(values[1]));
  options.seed = static_cast<std::uint64_t>(std::get<std::int64_t>(values[2]));
  const std::string_view wire_type = std::get<std::string_view>(values[3]);
  if (wire_type == "fp16") options.wire_type = DType::kFloat16;
  if (wire_type == "bf16") options.wire_type = DType::kBFloat16;
  return std::make_shared<const PowerSgd>(std::move(options), text);
}

}  // namespace

extern const TechniqueKind kTechnique = {
    "power_sgd",
    "Sends low-rank factors of the gradients' matrices and keeps what they lack for later steps.",
    kParameters, &make};

}  // namespace roundelay::compress::power_sgd
