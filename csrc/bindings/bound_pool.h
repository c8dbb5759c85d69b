// The Python class GradientPool.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "adapter/gradient_pool.h"
#include "adapter/technique_choice.h"
#include "runtime/context.h"
#include "submit/handles.h"

namespace roundelay::bindings {

// A gradient pool belongs to one init(): after another one its memory may be shared with other ranks than
// those of the process set.
struct BoundPool {
  adapter::GradientPool pool;
  ProcessSetId process_set;
  std::weak_ptr<runtime::Context> context;
};

// The operation of an allreduce: a ReduceOp and the factors before and after it, in the type that travels.
struct Reduction {
  int op;
  double prescale_factor;
  double postscale_factor;
  std::optional<double> result_factor{};  // of the results in the pool's result memory; none: it gets none
};

// Submits an allreduce in place, which takes this technique. Call it with the GIL. Errors: ValueError (the
// pool is another init()'s, the range is not in the pool), those of Context::submit; raised, and the peers
// hear of them.
submit::Handle allreduce(BoundPool& pool, const adapter::PoolRange& range, const std::string& name,
                         const Reduction& reduction, const adapter::TechniqueUse& technique);

}  // namespace roundelay::bindings
