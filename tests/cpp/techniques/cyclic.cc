// A technique of the tests, compiled as others compile theirs. Each step sends one of `parts` parts of the
// bucket, in turn, and keeps the others back for later steps. It is the plainest technique with state: it
// shows what state costs, and a technique that chooses what to send must be better than it.
//
// Chunk i of a bucket belongs to part i mod `parts`. Rank r has a residual e_r, which is zero at first. With
// the gradients g_r, and C for the chunks whose turn it is:
//   u_r = e_r + g_r
//   s_r = u_r, rounded to the bucket's type, in C
//   result = scale(sum over r of prescale(s_r)) in C, and 0 elsewhere
//   e_r = u_r - s_r in C (0 if nothing is rounded), and u_r elsewhere
// So a residual has the units of one rank's part of the sum, before prescale and scale: they act once on each
// gradient, in the step that sends it. Elements that are not finite are sent in their turn and not kept. The
// number of the run says whose turn it is. The state is the residual.
#include <algorithm>
#include <utility>

#include "compress/library.h"

namespace roundelay::compress {
namespace {

using collective::Calling;
using collective::Task;

constexpr std::size_t kMostChunk = 4096;  // elements

// Divides a bucket into chunks of nearly equal size, a multiple of `parts` if there are enough elements.
Chunking chunking_of(std::size_t count, std::size_t parts) {
  const std::size_t in_a_part = std::max<std::size_t>(1, (count / parts + kMostChunk - 1) / kMostChunk);
  const std::size_t chunks = parts * in_a_part;
  return {count, std::max<std::size_t>(1, (count + chunks - 1) / chunks)};
}

class Cyclic final : public Technique {
 public:
  Cyclic(std::int64_t parts, std::string text)
      : parts_(static_cast<std::size_t>(parts)), text_(std::move(text)) {}

  std::string text() const override { return text_; }
  std::size_t state_bytes(std::size_t count, DType dtype, std::span<const int>) const override {
    return count * size_of(kernels::residual_type(dtype));
  }
  std::size_t kept_numbers(std::size_t count, std::span<const int>) const override { return count; }

  Task run(Workspace& workspace, Bucket bucket) const override {
    Arithmetic& math = workspace.math();
    const DType dtype = bucket.reduction.dtype;
    const Chunking chunking = chunking_of(bucket.count, parts_);
    const std::size_t chosen = (chunking.chunks() + parts_ - 1) / parts_;
    std::byte* const values = bucket.buffer.data();
    std::byte* const residual = bucket.state.data();
    const kernels::Progression turn{static_cast<std::uint32_t>(bucket.run % parts_),
                                    static_cast<std::uint32_t>(parts_)};

    const Result<std::byte*> memory = workspace.scratch(chosen * sizeof(std::uint32_t));
    if (!memory.ok()) co_return memory.status();
    const Result<std::byte*> message = workspace.scratch(chosen * chunking.chunk * size_of(dtype));
    if (!message.ok()) co_return message.status();
    const std::span indices(reinterpret_cast<std::uint32_t*>(*memory), chosen);

    Status bad = math.keep(residual, values, bucket.count, dtype);
    if (bad.ok()) bad = math.number(indices, turn);
    if (bad.ok()) bad = math.gather(*message, residual, chunking, indices, dtype);
    if (!bad.ok()) co_return bad;

    // The last chunk is filled with zeros. If there is one part, they come after all elements: the call is
    // then that of a dense allreduce.
    const std::size_t sent = std::min(chosen * chunking.chunk, bucket.count);
    collective::Call call = allreduce_of({*message, 0, sent * size_of(dtype)}, bucket, workspace);
    co_await Calling(workspace.fabric(), call);
    co_return math.scatter(values, dtype, *message, dtype, chunking, indices);
  }

  Residual residual(std::size_t count, const Scale&, const Place&) const override { return {{0, count}}; }

 private:
  const std::size_t parts_;
  const std::string text_;
};

constexpr Parameter kParameters[] = {
    {"parts", "the number of steps in which each gradient is sent once", Whole{1, 1 << 20, 4}}};

const TechniqueKind kCyclic = {
    "cyclic", "Sends one of several parts of a bucket in each step, in turn, and keeps the rest for later.",
    kParameters, [](std::span<const Value> values, const std::string& text) -> TechniquePtr {
      return std::make_shared<const Cyclic>(std::get<std::int64_t>(values[0]), text);
    }};

}  // namespace
}  // namespace roundelay::compress

ROUNDELAY_TECHNIQUE_LIBRARY(&roundelay::compress::kCyclic)
