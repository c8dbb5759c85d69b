// Sends fp32 gradients in a half type: one cast on the way in, one allreduce, one cast on the way back. A
// pool in a half type (compression=, dense:wire=bf16) spares a copy; this technique may begin and end at any
// step, bucket by bucket, which a pool's type cannot.
#include "compress/registry.h"

namespace roundelay::compress::half {
namespace {

using collective::Calling;
using collective::Task;

class Half final : public Technique {
 public:
  Half(DType wire_type, std::string text) : wire_type_(wire_type), text_(std::move(text)) {}

  std::string text() const override { return text_; }
  Status check(const BucketShape& shape) const override {
    if (is_floating(shape.dtype)) return {};
    return Status::invalid("technique 'half' needs floating gradients, not " +
                           std::string(name_of(shape.dtype)));
  }
  std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }

  Task run(Workspace& workspace, Bucket bucket) const override {
    return size_of(bucket.reduction.dtype) > size_of(wire_type_) ? run_cast(workspace, bucket)
                                                                 : run_dense(workspace, bucket);
  }

  Residual residual(std::size_t, const Scale&, const Place&) const override { return {}; }

 private:
  Task run_dense(Workspace& workspace, Bucket bucket) const {
    collective::Call call = allreduce_of(bucket.buffer, bucket, workspace);
    co_await Calling(workspace.fabric(), call);
    co_return Status{};
  }

  Task run_cast(Workspace& workspace, Bucket bucket) const {
    Arithmetic& math = workspace.math();
    std::byte* const values = bucket.buffer.data();
    const DType dtype = bucket.reduction.dtype;
    const std::size_t bytes = bucket.count * size_of(wire_type_);
    const Result<std::byte*> message = workspace.scratch(bytes);
    if (!message.ok()) co_return message.status();

    // A prescale comes before the cast, where a half type could overflow.
    Status bad;
    if (!bucket.reduction.prescale.identity())
      bad = math.scale(values, bucket.count, dtype, bucket.reduction.prescale);
    const kernels::GpuCopy in{*message, values, bucket.count, wire_type_, dtype};
    if (bad.ok()) bad = math.copy({&in, 1});
    if (!bad.ok()) co_return bad;

    collective::AllreduceCall sum = allreduce_of({*message, 0, bytes}, bucket, workspace);
    sum.dtype = wire_type_;
    sum.prescale = {};
    collective::Call call = sum;
    co_await Calling(workspace.fabric(), call);
    const kernels::GpuCopy out{values, *message, bucket.count, dtype, wire_type_};
    co_return math.copy({&out, 1});
  }

  const DType wire_type_;
  const std::string text_;
};

constexpr std::string_view kWires[] = {"bf16", "fp16"};
constexpr Parameter kParameters[] = {{"wire", "the type in which elements travel", Word{kWires}}};

}  // namespace

extern const TechniqueKind kTechnique = {
    "half", "Casts gradients to a half type for the allreduce, and the sums back.", kParameters,
    [](std::span<const Value> values, const std::string& text) -> TechniquePtr {
      const bool bf16 = std::get<std::string_view>(values[0]) == "bf16";
      return std::make_shared<const Half>(bf16 ? DType::kBFloat16 : DType::kFloat16, text);
    }};

}  // namespace roundelay::compress::half
