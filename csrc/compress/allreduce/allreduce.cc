// Reduces densely by one algorithm, whatever the group's rule is: so that a search may try algorithms on the
// training itself, bucket by bucket. In shared memory there is one way, and the algorithm makes no
// difference.
#include "compress/registry.h"

namespace roundelay::compress::allreduce {
namespace {

using collective::Calling;
using collective::Task;

class Allreduce final : public Technique {
 public:
  // `algorithm` is in static storage, as CallOptions wants it.
  Allreduce(std::string_view algorithm, std::string text) : algorithm_(algorithm), text_(std::move(text)) {}

  std::string_view name() const override { return "allreduce"; }
  std::string text() const override { return text_; }
  std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }

  Task run(Stage& stage, Bucket bucket) const override {
    collective::AllreduceCall sum = allreduce_of(bucket.buffer, bucket, stage);
    sum.algorithm = algorithm_;
    collective::Call call = sum;
    co_await Calling(stage.fabric(), call);
    co_return Status{};
  }

  Status give_back(Stage&, const Bucket&) const override { return {}; }  // it keeps nothing back

 private:
  const std::string_view algorithm_;
  const std::string text_;
};

// Those of an allreduce in collective/select.cc; a test compares them.
constexpr std::string_view kAlgorithms[] = {"direct",           "pairwise",      "recursive_doubling", "ring",
                                            "halving_doubling", "binomial_tree", "pipelined_tree"};
constexpr Parameter kParameters[] = {{"algorithm", "the algorithm of the allreduce", Choice{kAlgorithms}}};

}  // namespace

extern const TechniqueKind kTechnique = {
    "allreduce", "Reduces densely by one algorithm, whatever the topology or a tuning file says.",
    kParameters, [](std::span<const Value> values, const std::string& text) -> TechniquePtr {
      return std::make_shared<const Allreduce>(std::get<std::string_view>(values[0]), text);
    }};

}  // namespace roundelay::compress::allreduce
