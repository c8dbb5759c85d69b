// A technique outside of Roundelay's tree, which changes nothing: it negates the elements, reduces them, and
// negates the result. docs/strategies.md has the command that compiles it.
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "compress/library.h"

namespace {

using roundelay::DType;
using roundelay::Scale;
using roundelay::Status;
using roundelay::collective::Call;
using roundelay::collective::Calling;
using roundelay::collective::Task;
using namespace roundelay::compress;

constexpr Scale kMinus{-1.0, 1};

class Negate final : public Technique {
 public:
  explicit Negate(std::string text) : text_(std::move(text)) {}

  std::string text() const override { return text_; }
  std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }

  Task run(Workspace& workspace, Bucket bucket) const override {
    Arithmetic& math = workspace.math();
    std::byte* const values = bucket.buffer.data();
    const DType dtype = bucket.reduction.dtype;

    if (Status bad = math.scale(values, bucket.count, dtype, kMinus); !bad.ok()) co_return bad;
    Call call = allreduce_of(bucket.buffer, bucket, workspace);
    co_await Calling(workspace.fabric(), call);  // goes on when the result is in place
    co_return math.scale(values, bucket.count, dtype, kMinus);
  }

  Residual residual(std::size_t, const Scale&, const Place&) const override { return {}; }

 private:
  const std::string text_;
};

const TechniqueKind kNegate = {"negate",
                               "Negates gradients before and after the allreduce.",
                               {},
                               [](std::span<const Value>, const std::string& text) -> TechniquePtr {
                                 return std::make_shared<const Negate>(text);
                               }};

}  // namespace

ROUNDELAY_TECHNIQUE_LIBRARY(&kNegate)
