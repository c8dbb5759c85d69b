// Reduces densely by one algorithm and one plan over levels, whatever the group's rules are: so that a search
// may try them on the training itself, bucket by bucket. In shared memory there is one way, and they make no
// difference.
#include "compress/registry.h"

namespace roundelay::compress::allreduce {
namespace {

using collective::Calling;
using collective::Task;

constexpr std::string_view kRule = "auto";  // no algorithm: the group's rule chooses

class Allreduce final : public Technique {
 public:
  // `algorithm` is in static storage, as CallOptions wants it. `factors`: as there.
  Allreduce(std::string_view algorithm, std::vector<std::uint32_t> factors, std::string text)
      : algorithm_(algorithm), factors_(std::move(factors)), text_(std::move(text)) {}

  std::string text() const override { return text_; }
  std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }

  Task run(Workspace& workspace, Bucket bucket) const override {
    collective::AllreduceCall sum = allreduce_of(bucket.buffer, bucket, workspace);
    if (algorithm_ != kRule) sum.algorithm = algorithm_;
    sum.factors = factors_;
    collective::Call call = sum;
    co_await Calling(workspace.fabric(), call);
    co_return Status{};
  }

  Residual residual(std::size_t, const Scale&, const Place&) const override { return {}; }

 private:
  const std::string_view algorithm_;
  const std::vector<std::uint32_t> factors_;
  const std::string text_;
};

constexpr std::string_view kAlgorithms[] = {
    kRule,
#define ALLREDUCE(Name, name, ...) name,
#define ALGORITHM(...)
#include "base/algorithms.def"
#undef ALLREDUCE
#undef ALGORITHM
};
constexpr Parameter kParameters[] = {
    {"algorithm", "the algorithm of the allreduce; auto: the group's choice", Word{kAlgorithms}},
    {"factors", "the plan over levels, one of those that the job has made; none: its first one", Numbers{}}};

}  // namespace

extern const TechniqueKind kTechnique = {
    "allreduce",
    "Reduces densely by one algorithm and one plan, whatever the topology or a tuning file says.",
    kParameters, [](std::span<const Value> values, const std::string& text) -> TechniquePtr {
      return std::make_shared<const Allreduce>(std::get<std::string_view>(values[0]),
                                               std::get<std::vector<std::uint32_t>>(values[1]), text);
    }};

}  // namespace roundelay::compress::allreduce
