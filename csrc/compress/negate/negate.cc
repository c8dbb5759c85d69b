// A technique that changes nothing: it negates the elements, reduces them, and negates the result. It is the
// example of docs/strategies.md for those who write their own.
#include "compress/registry.h"

namespace roundelay::compress::negate {
namespace {

using collective::Calling;
using collective::Task;

constexpr Scale kMinus{-1.0, 1};

class Negate final : public Technique {
 public:
  std::string_view name() const override { return "negate"; }
  std::string text() const override { return "negate"; }
  std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }

  Task run(Workspace& workspace, Bucket bucket) const override {
    Arithmetic& math = workspace.math();
    std::byte* const values = bucket.buffer.data();
    const DType dtype = bucket.reduction.dtype;

    if (Status bad = math.scale(values, bucket.count, dtype, kMinus); !bad.ok()) co_return bad;
    collective::Call call = allreduce_of(bucket.buffer, bucket, workspace);
    co_await Calling(workspace.fabric(), call);  // goes on when the result is in place
    co_return math.scale(values, bucket.count, dtype, kMinus);
  }

  Status give_back(Workspace&, const Bucket&) const override { return {}; }  // it keeps nothing back
};

}  // namespace

extern const TechniqueKind kTechnique = {
    "negate",
    "Negates gradients before and after the allreduce; an example that changes nothing.",
    {},
    [](std::span<const Value>, const std::string&) -> TechniquePtr {
      return std::make_shared<const Negate>();
    }};

}  // namespace roundelay::compress::negate
