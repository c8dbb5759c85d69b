// The technique that a bucket takes, its state on this rank, and counts of its reductions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "compress/technique.h"

namespace roundelay::gradients {

// The elements of a bucket.
struct BucketElements {
  c10::Device device = at::kCPU;
  DType dtype = DType::kFloat32;
  std::size_t count = 0;                                 // padding included
  std::vector<compress::Slice> parameters;               // ascending
  std::shared_ptr<std::vector<std::uint8_t>> present{};  // compress::BucketTechnique's
};

// The technique that one operation takes.
struct TechniqueUse {
  std::string_view text{};  // wire::Request's text; lives as long as the choice
  std::shared_ptr<const compress::BucketTechnique> technique{};  // null: dense
};

// Counts what operations with one technique have reduced on this rank.
struct TechniqueTraffic {
  std::string technique;  // its text; "dense": none, or it did not apply
  std::int64_t operations = 0;
  std::int64_t bytes = 0;         // the size of the gradients
  std::int64_t called_bytes = 0;  // bytes that this rank gave to the fabric
};

// Callers hold the GIL. An operation may outlive the choice: it keeps the state's memory.
class TechniqueChoice {
 public:
  TechniqueChoice();
  ~TechniqueChoice();

  // Chooses the technique of later operations by the text of compress/registry.h; "" or "dense": none.
  // `levels`: as in compress::Technique::state_bytes(). A technique that is chosen again keeps
  // its state; another one gets new state, which is zero. Errors, which change nothing: kInvalidArgument (the
  // text is wrong), kUnavailable (the state may contain gradients, or there is no memory).
  [[nodiscard]] Status choose(std::string_view text, BucketElements elements, std::span<const int> levels);
  // The canonical text; empty: dense.
  [[nodiscard]] const std::string& text() const { return text_; }
  // The state, as bytes in the memory that the technique uses; undefined: the technique has none. A write
  // through this tensor counts as gradients that are kept.
  [[nodiscard]] const at::Tensor& state() const { return state_; }
  // Returns true if the state may contain gradients that no flush has sent.
  [[nodiscard]] bool unflushed() const;
  // Counts the runs that used the state since it was clear. A restored state brings its number.
  [[nodiscard]] std::uint64_t run() const { return run_; }
  void set_run(std::uint64_t run) { run_ = run; }
  // Returns what the state keeps back, as in compress::Technique::residual(). `place` and `scale` are those
  // of the set's levels and operation.
  [[nodiscard]] compress::Residual residual(const Scale& scale, const compress::Place& place) const;
  // Multiplies what the state keeps of gradients, after their scale has changed. May throw.
  void rescale(double factor);
  // Returns the chunks that the last operation has sent; none: it was dense, or there was none.
  [[nodiscard]] std::optional<compress::SentChunks> sent() const;
  // Returns the indices of `sent`, 32 bits each, as a view of the state. The next operation overwrites them.
  [[nodiscard]] at::Tensor sent_indices(const compress::SentChunks& sent) const;
  // Makes the next operation a flush. Does nothing if the bucket is dense. An operation to which no technique
  // applies, because a rank has joined, flushes nothing: unflushed() then remains true.
  void flush_next() { flush_next_ = chosen_ != nullptr; }

  // Returns what the next operation takes. The caller then calls submitted(), and complete() or, if nobody
  // takes the results, fail() when the operation is over.
  [[nodiscard]] TechniqueUse next();
  void submitted() { flushing_ = std::exchange(flush_next_, false); }
  // `bytes`: of the gradients.
  void complete(std::size_t bytes);
  // Counts an operation that has succeeded as a run too, as the other ranks do.
  void fail();

  // Returns whether the technique has carried out the last operation, as a run or as a flush.
  [[nodiscard]] bool applied() const;
  // Returns one for each technique that was used.
  [[nodiscard]] const std::vector<TechniqueTraffic>& traffic() const { return traffic_; }

 private:
  struct Chosen;
  [[nodiscard]] Result<std::shared_ptr<Chosen>> prepare(compress::TechniquePtr technique,
                                                        const BucketElements& elements,
                                                        std::span<const int> levels) const;
  void count(std::string_view technique, std::size_t bytes, std::size_t called_bytes);
  void next_run() { run_ = flushing_ ? 0 : run_ + 1; }

  std::string text_, flush_text_;
  std::shared_ptr<Chosen> chosen_;  // null: dense
  at::Tensor state_;
  std::int64_t clean_version_ = 0;  // the version of `state_` when it was known to be clear
  BucketElements elements_;         // the bucket's elements; empty: dense
  std::vector<int> levels_;
  std::uint64_t run_ = 0;
  std::optional<std::uint64_t> last_run_;  // the number of the last operation, if it was a run
  bool used_ = false;                      // an operation has written the state since then
  bool flush_next_ = false;
  bool flushing_ = false;  // the operation in flight is a flush
  std::vector<TechniqueTraffic> traffic_;
};

}  // namespace roundelay::gradients
