// The rule by which the gradients of one optimizer are reduced.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "adapter/submission.h"
#include "base/group.h"
#include "gradients/batch_weights.h"

namespace roundelay::gradients {

// The user's compression of gradients that are in no pool. Callers hold the GIL. The functions may throw.
class Compressor {
 public:
  struct Compressed {
    at::Tensor tensor;              // travels, and is reduced in place
    std::shared_ptr<void> context;  // what decompress() needs
  };
  virtual ~Compressor() = default;
  virtual Compressed compress(const at::Tensor& gradient) = 0;
  virtual at::Tensor decompress(const Compressed& reduced) = 0;
};

// Equal on all ranks.
struct Rule {
  adapter::ReductionArguments reduction;
  ProcessSetId process_set = 0;
  bool additive = true;         // results of several reductions of one gradient may be added
  bool sparse_as_dense = true;  // sparse gradients are made dense
  bool takes_sparse = false;    // others are reduced as they are; false: they are an error
  std::optional<at::ScalarType>
      wire_type;  // fp32 and fp64 gradients travel in this type; nothing: in their own
  std::shared_ptr<Compressor> compressor;  // null: none
  std::shared_ptr<BatchWeights> weights;   // an average over samples; null: over ranks
};

}  // namespace roundelay::gradients
